//! Values of facts and rows, and the names and manifests of backups: damage is an error, and every other value encodes
//! and decodes to the same value.

use attribution::facts::event::{Family, Pid};
use attribution::facts::keys::{FactKey, MatchKey};
use xxhash_rust::xxh3::xxh3_64;

use crate::embedded::touches::record::TableRecord;
use crate::layout::codec::row::{RowView, TextCell};
use crate::layout::codec::touch::{TouchRef, put_contents, split_contents};
use crate::layout::codec::{fact, fact_record as record_codec, outbox, row as row_codec};
use crate::layout::key::{self, KEY_BYTES, RowKey};
use crate::maintenance::backup::StoredFile;
use crate::maintenance::backup::manifest::{Manifest, ManifestName};
use crate::maintenance::verify::stored_row;

/// A row's key and value.
pub fn row(input: &[u8]) {
    let Some((key, value)) = input.split_first_chunk::<KEY_BYTES>() else { return };
    let (Some(key), Ok(view)) = (RowKey::decode(key), RowView::decode(value)) else { return };
    let texts: Vec<_> = view.texts_between(TextCell::FIRST, TextCell::LAST).collect();
    for cell in TextCell::ALL {
        let text = view.text(cell);
        assert!(text.is_empty() || texts.contains(&cell));
        let (bytes, len) = view.bytes(cell);
        assert_eq!(bytes.get(..len), Some(text.as_bytes()));
    }
    let Some(row) = stored_row::row(&key, &view) else { return };
    let mut written = Vec::new();
    row_codec::encode(&row, &mut written);
    let again = RowView::decode(&written).ok().and_then(|view| stored_row::row(&key, &view));
    assert_eq!(again, Some(row));
}

/// The first byte is the family; the rest is the value of a fact record. Also a value of a table of touches or of the
/// outbox.
pub fn record(input: &[u8]) {
    touch_table(input);
    outbox_record(input);
    let Some((family, value)) = input.split_first() else { return };
    let (family, pid) = (Family::ALL[usize::from(*family) % Family::ALL.len()], Pid(1));
    let Ok(found) = record_codec::decode(family, pid, value) else { return };
    let times = fact::times(family, value).ok();
    assert_eq!(times, Some((found.time(), found.lookback_ms())));
    let mut written = Vec::new();
    record_codec::encode(&found, &mut written);
    assert_eq!(record_codec::decode(family, pid, &written).ok(), Some(found));
}

fn touch_table(input: &[u8]) {
    if let Ok(touch) = TouchRef::decode(input) {
        assert_eq!(touch.encode(), input);
    }
    if let Ok((pid, record)) = split_contents(input) {
        let mut written = Vec::new();
        put_contents(&mut written, pid, record);
        assert_eq!(written, input);
    }
    if let Some(table) = TableRecord::decode(input) {
        assert_eq!(TableRecord::decode(&table.encode()), Some(table));
    }
}

fn outbox_record(input: &[u8]) {
    let event = FactKey { family: Family::Effect, id: MatchKey(1), pid: Pid(1), tag: 1 };
    let key = key::record(&event);
    if let Ok(record) = outbox::decode(&key, input) {
        let mut written = Vec::new();
        outbox::encode(&record, &mut written);
        assert_eq!(outbox::decode(&key, &written).ok(), Some(record));
    }
    if let Some(tally) = outbox::decode_tally(input) {
        assert_eq!(outbox::encode_tally(&tally), input);
    }
}

/// The name of a manifest or of a stored file, or the text of a manifest.
pub fn backup(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        if let Some(name) = ManifestName::parse(text) {
            assert_eq!(name.file(), text);
        }
        if let Ok(file) = text.parse::<StoredFile>() {
            assert_eq!(file.to_string(), text);
            assert!(!file.source.name.contains('/') && !file.source.name.starts_with('.'));
        }
    }
    let name = ManifestName { backup: 1, hash: xxh3_64(input) };
    let Ok(manifest) = Manifest::parse(input, name) else { return };
    assert_eq!(manifest.backup, 1);
    assert!(manifest.files().is_ok_and(|files| files.len() as u64 == manifest.amount().files));
    let written = manifest.encode().ok();
    let again = written.and_then(|(name, text)| Manifest::parse(&text, name).ok());
    assert_eq!(again, Some(manifest));
}
