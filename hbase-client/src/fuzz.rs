//! What decodes what servers send, for a fuzzer and for the inputs that are kept: see
//! `docs/fuzzing.md`. Each target takes any bytes, and panics where something does not hold.

#[cfg(test)]
#[path = "../../fuzz/kept.rs"]
mod kept;

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use crate::action::{Action, CheckAndMutate, Get, Mutation, Put};
use crate::cluster::MetaRow;
use crate::location::Region;
use crate::multi::{Group, Multi};
use crate::names::Server;
use crate::proto::data::MultiResponse;
use crate::proto::rpc::ExceptionResponse;
use crate::proto::scan::ScanResponse;
use crate::remote_exception::RemoteException;
use crate::rows::{self, Row};
use crate::scan::cursor::Cursor;
use crate::wire::cell::{Cell, Kind, Parts};
use crate::wire::frame::{Answer, Payload};

/// By name, for any bytes.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("hbase-answer", answer),
    ("hbase-cells", cells),
    ("hbase-fault", fault),
    ("hbase-meta", meta),
    ("hbase-multi", multi),
    ("hbase-scan", scan),
];

/// Whatever comes after a length.
fn answer(input: &[u8]) {
    let Ok(answer) = Answer::decode(Bytes::copy_from_slice(input)) else { return };
    let Ok(Payload { message, cells }) = answer.outcome else { return };
    assert!(message.len() + cells.len() < input.len());
}

/// A cell that is read is written so, but for its tags.
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

/// A class, a line break, and what is said.
fn fault(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (class, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let fault = RemoteException::from_exception(&ExceptionResponse {
        exception_class_name: Some(class.to_owned()),
        stack_trace: Some(rest.to_owned()),
        ..ExceptionResponse::default()
    });
    assert!(fault.message.chars().count() <= 500 && !fault.message.contains('\n'));
    let _ = (fault.retry_action(), fault.to_string());
}

/// The description of a region.
fn meta(input: &[u8]) {
    let parts = Parts {
        row: b"t,,1",
        family: b"info",
        qualifier: b"regioninfo",
        timestamp: 1,
        kind: Kind::Put,
        value: input,
    };
    let row = Cell::from_parts(&parts, Kind::Put.code()).ok().and_then(|cell| Row::new(vec![cell]));
    let Some(row) = row else { return };
    if let Ok(Some(read)) = MetaRow::parse(&row) {
        // It says nothing of a server.
        assert!(read.region().is_none());
    }
}

fn region() -> Region {
    let (name, start, end) = (Bytes::from("r"), Bytes::new(), Bytes::new());
    let server = Server { host: "h".into(), port: 1 };
    Region { name, id: 1, start, end, server }
}

/// A length of two bytes, a message, and a block of cells.
fn parted(input: &[u8]) -> (Bytes, Bytes) {
    let bytes = Bytes::copy_from_slice(input);
    let Some(length) = input.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)))
    else {
        return (Bytes::new(), Bytes::new());
    };
    let end = (2 + length).min(bytes.len());
    (bytes.slice(2..end), bytes.slice(end..))
}

/// The answer to a batch: nothing is said twice, or of what was not asked.
fn multi(input: &[u8]) {
    let (message, cells) = parted(input);
    let Ok(answer) = MultiResponse::decode(message) else { return };
    let put = |row: &'static str| Put::new(row).cell("d", "q", "v");
    let actions = [
        Action::Mutate(Mutation::from(put("a")).change),
        Action::Get(Get::new("b")),
        Action::Check(CheckAndMutate::where_absent("d", "q", put("c"))),
    ];
    let group = Group { region: Arc::new(region()), ids: vec![0, 1, 2] };
    let Ok(said) = Multi::build(&actions, &[group]).read(&answer, cells) else { return };
    let ids: HashSet<_> = said.iter().map(|(id, _)| *id).collect();
    assert!(ids.len() == said.len() && ids.iter().all(|&id| id < 3));
}

/// Answers to a scan, the same one twice: rows are given out in order, and once.
fn scan(input: &[u8]) {
    let (message, cells) = parted(input);
    let Ok(answer) = ScanResponse::decode(message) else { return };
    let mut place = Cursor::new(Bytes::new(), Bytes::new(), Some(100));
    let mut given: Vec<Row> = Vec::new();
    for _ in 0..2 {
        let Ok(results) = rows::of_scan(&answer, cells.clone()) else { return };
        assert!(results.len() <= cells.len() && results.iter().all(|(cells, _)| !cells.is_empty()));
        match place.take(&region(), results, cells.len()) {
            Ok(rows) => given.extend(rows),
            Err(_) => place.reset(),
        }
    }
    given.extend(place.end());
    assert!(given.len() <= 100);
    assert!(given.windows(2).all(|pair| pair[0].key() < pair[1].key()));
}
