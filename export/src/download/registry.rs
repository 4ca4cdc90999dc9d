//! The exports requested over HTTP, and the state of each.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Serialize, Serializer};

use super::audit::{self, ExportOutcome, ExportRequest};
use super::checksum::Checksum;
use crate::ExportError;
use crate::download::state::State;
use crate::format::time::writer::{in_utc, now};
use crate::format::write_rows::Chunk;
use crate::metrics::{Active, Metrics};
use crate::query::parameter::{EXPORT_ID, bad, expected};

/// Above this number, the oldest ended exports are forgotten.
const KEPT_MAX: usize = 10_000;

/// The latest exports of this process.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    kept: Mutex<Kept>,
    /// The greatest id assigned so far.
    last: AtomicU64,
}

#[derive(Debug, Default)]
struct Kept {
    by_id: HashMap<u64, Export>,
    /// All ids, in the order in which the exports started.
    ids: VecDeque<u64>,
}

/// An export id chosen by the client, so that it can query the export before it has the response headers. It is far
/// above the ids assigned here, which are microseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChosenId(u64);

/// The state of an export. Bytes and checksum are of the file before compression.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Export {
    #[serde(serialize_with = "serialize_id")]
    pub id: u64,
    /// Id of the token, or `none`.
    #[serde(skip)]
    pub token: Box<str>,
    pub app: Box<str>,
    /// The requested URL.
    pub request: Box<str>,
    pub file: Box<str>,
    pub started: String,
    pub ended: Option<String>,
    pub state: State,
    /// Rows passed to the client so far.
    pub rows: u64,
    pub bytes: u64,
    /// Set when the export is complete.
    pub sha256: Option<String>,
}

/// An export in progress. If it is dropped, it counts as aborted.
pub(crate) struct Running {
    exports: Arc<Exports>,
    active: Option<Active>,
    request: ExportRequest,
    since: Instant,
    export: Export,
    checksum: Checksum,
}

/// The trailers by which a client checks a complete file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sums {
    pub rows: u64,
    pub sha256: String,
}

impl ChosenId {
    const ALLOWED: &str = "16 hexadecimal digits in lower case, the first of them not 0";

    /// Removes the id from the parameters of a request.
    ///
    /// # Errors
    /// It has another form, or is repeated.
    pub fn take(parameters: &mut Vec<(String, String)>) -> Result<Option<Self>, ExportError> {
        let is_id = |(name, _): &mut (String, String)| name == EXPORT_ID;
        let mut removed = parameters.extract_if(.., is_id);
        let Some((_, text)) = removed.next() else { return Ok(None) };
        if removed.next().is_some() {
            return Err(ExportError::RepeatedParameter { parameter: EXPORT_ID });
        }
        let id = parse_id(&text).filter(|_| text.len() == 16);
        id.map(|id| Some(Self(id))).ok_or_else(|| expected(EXPORT_ID, Self::ALLOWED, &text))
    }
}

impl Exports {
    /// Registers an export that starts.
    ///
    /// # Errors
    /// Another export has the chosen id.
    pub fn start(
        self: &Arc<Self>,
        metrics: &Arc<Metrics>,
        request: ExportRequest,
        chosen: Option<ChosenId>,
        url: &str,
        file: &str,
    ) -> Result<Running, ExportError> {
        let id = chosen.map_or_else(|| self.next_id(), |chosen| chosen.0);
        let export = Export {
            id,
            token: request.token.clone(),
            app: request.app.clone(),
            request: url.into(),
            file: file.into(),
            started: in_utc(now()),
            ended: None,
            state: State::Running,
            rows: 0,
            bytes: 0,
            sha256: None,
        };
        if !self.kept.lock().begin(export.clone()) {
            const ALLOWED: &str = "an id that no export has";
            return Err(bad(EXPORT_ID, "another export has this id", &id_text(id), vec![ALLOWED]));
        }
        let active = Some(metrics.download_started());
        let (exports, since) = (Arc::clone(self), Instant::now());
        Ok(Running { exports, active, request, since, export, checksum: Checksum::default() })
    }

    /// Returns the export with this id, in the form that clients know.
    pub fn find(&self, id: &str) -> Option<Export> {
        self.kept.lock().by_id.get(&parse_id(id)?).cloned()
    }

    /// Returns the wanted exports, the latest first.
    pub fn latest(&self, max: usize, is_wanted: impl Fn(&Export) -> bool) -> Vec<Export> {
        let kept = self.kept.lock();
        let exports = kept.ids.iter().rev().filter_map(|id| kept.by_id.get(id));
        exports.filter(|export| is_wanted(export)).take(max).cloned().collect()
    }

    /// Returns the next id. Ids ascend, also from one process to the next.
    fn next_id(&self) -> u64 {
        let now_us = u64::try_from(Timestamp::now().as_microsecond()).unwrap_or_default();
        let next = |last: u64| Some(now_us.max(last + 1));
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        last.map_or(now_us, |last| now_us.max(last + 1))
    }
}

impl Kept {
    /// Adds the export; returns whether its id was free.
    fn begin(&mut self, export: Export) -> bool {
        let id = export.id;
        if self.by_id.contains_key(&id) {
            return false;
        }
        self.by_id.insert(id, export);
        self.ids.push_back(id);
        if self.ids.len() > KEPT_MAX {
            let is_running =
                |id| self.by_id.get(id).is_some_and(|kept| kept.state == State::Running);
            let ended = self.ids.iter().position(|id| !is_running(id));
            let ended = ended.and_then(|index| self.ids.remove(index));
            ended.map(|id| self.by_id.remove(&id));
        }
        true
    }
}

impl Running {
    pub fn id(&self) -> String {
        id_text(self.export.id)
    }

    /// Counts a chunk that is passed to the client.
    pub fn sent(&mut self, chunk: &Chunk) {
        self.checksum.add(&chunk.bytes);
        self.export.rows += chunk.rows;
        self.export.bytes += chunk.bytes.len() as u64;
        if let Some(active) = &self.active {
            active.sent(chunk.bytes.len());
        }
        if let Some(kept) = self.exports.kept.lock().by_id.get_mut(&self.export.id) {
            (kept.rows, kept.bytes) = (self.export.rows, self.export.bytes);
        }
    }

    pub fn complete(mut self) -> Sums {
        self.active.take().into_iter().for_each(Active::complete);
        let sha256 = std::mem::take(&mut self.checksum).text();
        self.export.sha256 = Some(sha256.clone());
        self.export.state = State::Complete;
        Sums { rows: self.export.rows, sha256 }
    }

    pub fn fail(mut self) {
        self.export.state = State::Failed;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.export.state == State::Running {
            self.export.state = State::Aborted;
        }
        self.export.ended = Some(in_utc(now()));
        let Export { rows, bytes, state, .. } = self.export;
        let (request, duration) = (&self.request, self.since.elapsed());
        audit::write(&ExportOutcome { request, rows, bytes, state, duration });
        if let Some(kept) = self.exports.kept.lock().by_id.get_mut(&self.export.id) {
            kept.clone_from(&self.export);
        }
    }
}

pub(crate) fn id_text(id: u64) -> String {
    format!("{id:x}")
}

fn parse_id(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok().filter(|id| id_text(*id) == text)
}

fn serialize_id<S: Serializer>(id: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&id_text(*id))
}
