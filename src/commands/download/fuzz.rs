//! Fuzzing of `--resume` with any partial file.

use std::fs;
use std::path::Path;

use super::partial_file::Part;
use super::saved_query::{Query, beside};

const EXPORT: &[u8] = b"event_type,event_time\nactivation,2026-03-10T12:00:00.000Z\neffect,\"\"\n";

/// Resumes a download from a fuzzed partial file and saved query. Either the target becomes the export, or an error is
/// returned and the file is unchanged.
///
/// An odd first byte puts the file at the target instead of the partial path. The file begins with as many bytes of the
/// export as the second byte says. The rest is the remainder of the file, a zero byte, and the saved query.
pub fn any(input: &[u8]) {
    let [is_whole, same, rest @ ..] = input else { return };
    let mut rest = rest.splitn(2, |byte| *byte == 0);
    let more = rest.next().unwrap_or_default();
    let same = EXPORT.get(..usize::from(*same).min(EXPORT.len())).unwrap_or_default();
    let part = [same, more].concat();
    let Ok(folder) = tempfile::tempdir() else { return };
    let whole = folder.path().join("f.csv");
    let path = if is_whole % 2 == 1 { whole.clone() } else { beside(&whole, ".part") };
    let written = fs::write(&path, &part);
    if let Some(query) = rest.next() {
        let _ = fs::write(beside(&whole, ".part.query"), query);
    }
    assert!(written.is_ok());
    let query = Query::from([("app".to_owned(), "x".to_owned())]);
    match resume(&whole, query) {
        Ok(()) => {
            assert_eq!(fs::read(&whole).ok().as_deref(), Some(EXPORT));
            assert!(!beside(&whole, ".part").exists() && !beside(&whole, ".part.query").exists());
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert_eq!(fs::read(&path).ok(), Some(part), "{error}");
        }
    }
}

fn resume(whole: &Path, query: Query) -> anyhow::Result<()> {
    let mut part = Part::resume(whole, query)?;
    let mut checksum = export::Checksum::default();
    for chunk in EXPORT.chunks(16) {
        checksum.add(chunk);
        part.write(chunk)?;
    }
    part.finish(&checksum.text())
}
