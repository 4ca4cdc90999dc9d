//! The exports that were asked for over HTTP: what became of each.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use attribution::event::EventTime;
use serde::{Serialize, Serializer};

use crate::audit::{self, Asked, Ended};
use crate::checksum::Checksum;
use crate::metrics::{Active, Metrics};
use crate::rows::Chunk;

/// Ended ones are forgotten then, the oldest first.
const KEPT_MAX: usize = 10_000;

/// The last exports of this process.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    kept: Mutex<BTreeMap<u64, Export>>,
    /// The greatest so far.
    last: AtomicU64,
}

/// What became of an export. Bytes and checksum are of the file before any compression.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Export {
    #[serde(serialize_with = "serialize_id")]
    pub id: u64,
    pub app: Box<str>,
    /// The address that it was asked for with.
    pub request: Box<str>,
    pub file: Box<str>,
    pub started: String,
    pub ended: Option<String>,
    pub state: State,
    /// Handed to the client so far.
    pub rows: u64,
    pub bytes: u64,
    /// Of a complete one.
    pub sha256: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Running,
    Complete,
    /// The client went away.
    Aborted,
    /// The rows could not be read to their end; the log says why.
    Failed,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Complete => "complete",
            Self::Aborted => "aborted",
            Self::Failed => "failed",
        }
    }
}

/// An export that is under way; one that is dropped has been aborted.
pub(crate) struct Running {
    exports: Arc<Exports>,
    active: Option<Active>,
    asked: Asked,
    since: Instant,
    export: Export,
    checksum: Checksum,
}

/// What a client checks a complete file by.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sums {
    pub rows: u64,
    pub sha256: String,
}

impl Exports {
    pub fn start(
        self: &Arc<Self>,
        metrics: &Arc<Metrics>,
        asked: Asked,
        request: &str,
        file: &str,
    ) -> Running {
        let export = Export {
            id: self.next_id(),
            app: asked.app.clone(),
            request: request.into(),
            file: file.into(),
            started: now_text(),
            ended: None,
            state: State::Running,
            rows: 0,
            bytes: 0,
            sha256: None,
        };
        self.keep(export.clone());
        let active = Some(metrics.download_started());
        let (exports, since) = (Arc::clone(self), Instant::now());
        Running { exports, active, asked, since, export, checksum: Checksum::default() }
    }

    /// The one with this id, as it was told to the client.
    pub fn find(&self, id: &str) -> Option<Export> {
        self.kept().get(&parse_id(id)?).cloned()
    }

    /// Ids ascend, also from one process to the next.
    fn next_id(&self) -> u64 {
        let now_us = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let now_us = u64::try_from(now_us).unwrap_or_default();
        let next = |last: u64| Some(now_us.max(last + 1));
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        last.map_or(now_us, |last| now_us.max(last + 1))
    }

    fn keep(&self, export: Export) {
        let mut kept = self.kept();
        kept.insert(export.id, export);
        if kept.len() > KEPT_MAX {
            let ended = kept.iter().find(|(_, export)| export.state != State::Running);
            let ended = ended.map(|(id, _)| *id);
            ended.map(|id| kept.remove(&id));
        }
    }

    /// Every update leaves the map whole, so a panic elsewhere does not spoil it.
    fn kept(&self) -> MutexGuard<'_, BTreeMap<u64, Export>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    pub fn id(&self) -> String {
        id_text(self.export.id)
    }

    /// The client takes a chunk.
    pub fn sent(&mut self, chunk: &Chunk) {
        self.checksum.add(&chunk.bytes);
        self.export.rows += chunk.rows;
        self.export.bytes += chunk.bytes.len() as u64;
        if let Some(active) = &self.active {
            active.sent(chunk.bytes.len());
        }
        if let Some(kept) = self.exports.kept().get_mut(&self.export.id) {
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
        self.export.ended = Some(now_text());
        let Export { rows, bytes, state, .. } = self.export;
        audit::write(&Ended {
            asked: &self.asked,
            rows,
            bytes,
            state,
            duration: self.since.elapsed(),
        });
        self.exports.keep(self.export.clone());
    }
}

fn now_text() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(now.as_millis()).unwrap_or_default();
    crate::zone::in_utc(EventTime::default().plus(millis))
}

fn id_text(id: u64) -> String {
    format!("{id:x}")
}

fn parse_id(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok().filter(|id| id_text(*id) == text)
}

fn serialize_id<S: Serializer>(id: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&id_text(*id))
}
