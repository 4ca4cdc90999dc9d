//! Values of facts and rows, and what a backup is told by: damage is an error, and what is no error
//! is written and read again as it was.

use attribution::facts::event::{Family, Pid};
use xxhash_rust::xxh3::xxh3_64;

use crate::layout::codec::row::{RowView, TextCell};
use crate::layout::codec::{fact, fact_record as code, row as row_code};
use crate::layout::key::{KEY_BYTES, RowKey};
use crate::maintenance::backup::StoredFile;
use crate::maintenance::backup::manifest::{Manifest, PageName};
use crate::maintenance::verify::stored_row as whole;

/// A row's key and value.
pub fn row(input: &[u8]) {
    let Some((key, value)) = input.split_first_chunk::<KEY_BYTES>() else { return };
    let (Some(key), Ok(view)) = (RowKey::decode(key), RowView::decode(value)) else { return };
    let texts: Vec<_> = view.texts_between(TextCell::EventName, TextCell::CreditOf).collect();
    for cell in TextCell::ALL {
        let text = view.text(cell);
        assert!(text.is_empty() || texts.contains(&cell));
        let (bytes, len) = view.bytes(cell);
        assert_eq!(bytes.get(..len), Some(text.as_bytes()));
    }
    let Some(row) = whole::row(&key, &view) else { return };
    let mut written = Vec::new();
    row_code::encode(&row, &mut written);
    let again = RowView::decode(&written).ok().and_then(|view| whole::row(&key, &view));
    assert_eq!(again, Some(row));
}

/// A byte for the family, and the value of a home.
pub fn record(input: &[u8]) {
    let Some((family, value)) = input.split_first() else { return };
    let (family, pid) = (Family::ALL[usize::from(*family) % Family::ALL.len()], Pid(1));
    let Ok(found) = code::decode(family, pid, value) else { return };
    let times = fact::times(family, value).ok();
    assert_eq!(times, Some((found.time(), found.lookback_ms())));
    let mut written = Vec::new();
    code::encode(&found, &mut written);
    assert_eq!(code::decode(family, pid, &written).ok(), Some(found));
}

/// The name of a page or of a file, or a page's text.
pub fn backup(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        if let Some(name) = PageName::parse(text) {
            assert_eq!(name.file(), text);
        }
        if let Ok(piece) = text.parse::<StoredFile>() {
            assert_eq!(piece.to_string(), text);
            assert!(!piece.source.name.contains('/') && !piece.source.name.starts_with('.'));
        }
    }
    let name = PageName { backup: 1, hash: xxh3_64(input) };
    let Ok(page) = Manifest::parse(input, name) else { return };
    assert_eq!(page.backup, 1);
    assert!(page.pieces().is_ok_and(|pieces| pieces.len() as u64 == page.amount().files));
    let written = page.encode().ok();
    let again = written.and_then(|(name, text)| Manifest::parse(&text, name).ok());
    assert_eq!(again, Some(page));
}
