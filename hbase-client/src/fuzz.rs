//! Fuzz targets for the decoders of received bytes: see `docs/fuzzing.md`. Each accepts any bytes and panics if an
//! invariant is violated. Tests run them on the stored inputs.

#[cfg(test)]
#[path = "../../fuzz/stored_inputs.rs"]
mod stored_inputs;

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use crate::batch::multi::{Group, Multi};
use crate::cluster::{MetaRow, Region};
use crate::error::RemoteException;
use crate::proto::common::NameBytesPair;
use crate::proto::data::MultiResponse;
use crate::proto::scan::ScanResponse;
use crate::rows::{self, Action, CheckAndMutate, Get, Mutation, Put, Row};
use crate::scan::cursor::Cursor;
use crate::wire::cell::{Cell, Kind, Parts};
use crate::wire::frame::{Payload, Response};

/// The name of a target, and its function.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("hbase-answer", response),
    ("hbase-cells", cells),
    ("hbase-fault", exception),
    ("hbase-meta", meta),
    ("hbase-multi", multi),
    ("hbase-scan", scan),
];

/// Decodes a response without its length.
fn response(input: &[u8]) {
    let Ok(response) = Response::decode(Bytes::copy_from_slice(input)) else { return };
    let Ok(Payload { message, cells }) = response.outcome else { return };
    assert!(message.len() + cells.len() < input.len());
}

/// Checks that decoded cells survive a round trip, except for their tags.
fn cells(input: &[u8]) {
    let mut block = Bytes::copy_from_slice(input);
    while let Ok(cell) = Cell::take(&mut block) {
        let Some(kind) = cell.kind() else { continue };
        let parts = Parts {
            row: cell.row(),
            family: cell.family(),
            qualifier: cell.qualifier(),
            timestamp: cell.timestamp(),
            kind,
            value: cell.value(),
        };
        let mut written = Vec::new();
        parts.put(&mut written);
        assert_eq!(Cell::take(&mut written.into()).as_ref(), Ok(&cell));
        assert_eq!(cell.detached(), cell);
    }
}

/// Decodes an exception: a class, a line break, and the text.
fn exception(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (class, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let value = Some(rest.to_owned().into());
    let exception = RemoteException::from_pair(&NameBytesPair { name: class.to_owned(), value });
    assert!(exception.message.chars().count() <= 500 && !exception.message.contains('\n'));
    let _ = (exception.retry_action(), exception.to_string());
}

/// Decodes a region info.
fn meta(input: &[u8]) {
    let parts = Parts {
        row: b"t,,1",
        family: b"info",
        qualifier: b"regioninfo",
        timestamp: 1,
        kind: Kind::Put,
        value: input,
    };
    let row = parts.cell().ok().and_then(|cell| Row::new(vec![cell]));
    let Some(row) = row else { return };
    if let Ok(Some(read)) = MetaRow::parse(&row) {
        // The row has no server.
        assert!(read.region().is_none());
    }
}

/// Splits the input into a message, prefixed with its length in two bytes, and a cell block.
fn split(input: &[u8]) -> (Bytes, Bytes) {
    let bytes = Bytes::copy_from_slice(input);
    let Some(length) = input.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)))
    else {
        return (Bytes::new(), Bytes::new());
    };
    let end = (2 + length).min(bytes.len());
    (bytes.slice(2..end), bytes.slice(end..))
}

/// Checks that the response of a batch has no repeated or unknown results.
fn multi(input: &[u8]) {
    let (message, cells) = split(input);
    let Ok(response) = MultiResponse::decode(message) else { return };
    let put = |row: &'static str| Put::new(row).cell("d", "q", "v");
    let actions = [
        Action::Mutate(Mutation::from(put("a")).change),
        Action::Get(Get::new("b")),
        Action::Check(CheckAndMutate::where_absent("d", "q", put("c"))),
    ];
    let group = Group { region: Arc::new(Region::example("", "")), ids: vec![0, 1, 2] };
    let Ok(results) = Multi::build(&actions, &[group]).read(&response, cells) else { return };
    let ids: HashSet<_> = results.iter().map(|(id, _)| *id).collect();
    assert!(ids.len() == results.len() && ids.iter().all(|&id| id < 3));
}

/// Checks that a scan that gets the same response twice returns its rows in order, each once.
fn scan(input: &[u8]) {
    let (message, cells) = split(input);
    let Ok(response) = ScanResponse::decode(message) else { return };
    let mut cursor = Cursor::new(Bytes::new(), Bytes::new(), Some(100));
    let mut returned: Vec<Row> = Vec::new();
    for _ in 0..2 {
        let Ok(results) = rows::from_scan(&response, cells.clone()) else { return };
        assert!(
            results.len() <= cells.len() && results.iter().all(|result| !result.cells.is_empty())
        );
        match cursor.take(&Region::example("", ""), results, cells.len()) {
            Ok(rows) => returned.extend(rows),
            Err(_) => cursor.reset(),
        }
    }
    returned.extend(cursor.finish());
    assert!(returned.len() <= 100);
    assert!(returned.windows(2).all(|pair| pair[0].key() < pair[1].key()));
}
