//! `--resume` of whatever is there, for `crate::fuzz`.

use std::fs;
use std::path::Path;

use super::partial_file::Part;
use super::saved_query::{Asked, beside};

/// What the export is.
const EXPORT: &[u8] = b"event_type,event_time\nactivation,2026-03-10T12:00:00.000Z\neffect,\"\"\n";

/// The first byte says whether a whole file is there in place of its part, the second how long the
/// part is at most, and over how much of the export the rest is laid; then come a part's bytes, a
/// zero, and what is said of its query. In the end the export is there, or all is as it was.
pub fn any(input: &[u8]) {
    let [is_whole, same, rest @ ..] = input else { return };
    let mut rest = rest.splitn(2, |byte| *byte == 0);
    let more = rest.next().unwrap_or_default();
    let same = EXPORT.get(..usize::from(*same).min(EXPORT.len())).unwrap_or_default();
    let part = [same, more].concat();
    let Ok(folder) = tempfile::tempdir() else { return };
    let whole = folder.path().join("f.csv");
    let place = if is_whole % 2 == 1 { whole.clone() } else { beside(&whole, ".part") };
    let written = fs::write(&place, &part);
    if let Some(query) = rest.next() {
        let _ = fs::write(beside(&whole, ".part.query"), query);
    }
    assert!(written.is_ok());
    let asked = Asked::from([("app", "x".to_owned())]);
    match resume(&whole, asked) {
        Ok(()) => {
            assert_eq!(fs::read(&whole).ok().as_deref(), Some(EXPORT));
            assert!(!beside(&whole, ".part").exists() && !beside(&whole, ".part.query").exists());
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert_eq!(fs::read(&place).ok(), Some(part), "{error}");
        }
    }
}

fn resume(whole: &Path, asked: Asked) -> anyhow::Result<()> {
    let mut part = Part::resume(whole, asked)?;
    let mut checksum = export::Checksum::default();
    // In chunks, as they come.
    for chunk in EXPORT.chunks(16) {
        checksum.add(chunk);
        part.take(chunk)?;
    }
    part.finish(&checksum.text())
}
