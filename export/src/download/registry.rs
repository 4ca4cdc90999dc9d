//! The exports requested over HTTP, and the state of each.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::extract::Request;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use tracing::Span;

use super::audit::{self, ExportOutcome, ExportRequest};
use super::checksum::Checksum;
use super::trace;
use crate::ExportError;
use crate::download::state::State;
use crate::format::chunks::Chunk;
use crate::format::time::writer::{in_utc, now};
use crate::metrics::{Active, Metrics};
use crate::query::parameter::{EXPORT_ID, bad, expected};

/// Exports that are kept of a token. Above this number, its oldest ended ones are forgotten.
const KEPT_PER_TOKEN_MAX: usize = 1_000;
/// Exports that are kept in total. Above this number, the token with most of them loses its oldest.
const KEPT_MAX: usize = 10_000;
/// A longer URL is cut after the last parameter that fits.
const URL_BYTES_MAX: usize = 2_048;

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
    /// The ids of each token, in the order in which its exports started.
    by_token: HashMap<Box<str>, VecDeque<u64>>,
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
    /// The requested URL; without its last parameters if it is long.
    pub request: Box<str>,
    #[serde(skip)]
    pub is_request_cut: bool,
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
    /// Ends with the export.
    span: Span,
    export: Export,
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
        let kept_url = cut(url);
        let export = Export {
            id,
            token: request.token.clone(),
            app: request.app.clone(),
            request: kept_url.into(),
            is_request_cut: kept_url.len() < url.len(),
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
        Ok(Running { exports, active, request, since, span: Span::none(), export })
    }

    /// Returns the export with this id, in the form that clients know.
    pub fn find(&self, id: &str) -> Option<Export> {
        self.kept.lock().by_id.get(&parse_id(id)?).cloned()
    }

    /// Returns the wanted exports of a token, the latest first.
    pub fn latest(
        &self,
        token: &str,
        max: usize,
        is_wanted: impl Fn(&Export) -> bool,
    ) -> Vec<Export> {
        let kept = self.kept.lock();
        let ids = kept.by_token.get(token).into_iter().flatten().rev();
        let exports = ids.filter_map(|id| kept.by_id.get(id));
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
        let token = export.token.clone();
        let of_token = self.by_token.entry(token.clone()).or_default();
        of_token.push_back(id);
        let is_token_full = of_token.len() > KEPT_PER_TOKEN_MAX;
        self.by_id.insert(id, export);
        if is_token_full {
            self.forget_oldest(&token);
        } else if self.by_id.len() > KEPT_MAX {
            let most = self.by_token.iter().max_by_key(|(_, ids)| ids.len());
            let most = most.map(|(token, _)| token.clone());
            most.into_iter().for_each(|token| self.forget_oldest(&token));
        }
        true
    }

    /// Forgets the oldest export of a token that has ended. The limits of concurrent downloads bound those that have
    /// not.
    fn forget_oldest(&mut self, token: &str) {
        let Some(ids) = self.by_token.get_mut(token) else { return };
        let is_running = |id| self.by_id.get(id).is_some_and(|kept| kept.state == State::Running);
        let ended = ids.iter().position(|id| !is_running(id));
        let ended = ended.and_then(|index| ids.remove(index));
        ended.map(|id| self.by_id.remove(&id));
    }
}

impl Running {
    /// Begins the span of the export.
    #[must_use]
    pub fn traced(mut self, request: &Request) -> Self {
        self.span = trace::start(&self.request, &self.id(), request);
        self
    }

    pub fn id(&self) -> String {
        id_text(self.export.id)
    }

    /// Counts a chunk that is passed to the client.
    pub fn sent(&mut self, chunk: &Chunk) {
        self.export.rows += chunk.rows;
        self.export.bytes += chunk.bytes.len() as u64;
        if let Some(active) = &self.active {
            active.sent(chunk.bytes.len());
        }
        if let Some(kept) = self.exports.kept.lock().by_id.get_mut(&self.export.id) {
            (kept.rows, kept.bytes) = (self.export.rows, self.export.bytes);
        }
    }

    /// Ends the export; `checksum` is of all chunks.
    pub fn complete(mut self, checksum: Checksum) -> Sums {
        self.active.take().into_iter().for_each(Active::complete);
        let sha256 = checksum.text();
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
        let outcome = ExportOutcome { request, rows, bytes, state, duration };
        audit::write(&outcome);
        trace::end(&self.span, &outcome);
        if let Some(kept) = self.exports.kept.lock().by_id.get_mut(&self.export.id) {
            kept.clone_from(&self.export);
        }
    }
}

/// Returns the part of a URL that is kept.
fn cut(url: &str) -> &str {
    if url.len() <= URL_BYTES_MAX {
        return url;
    }
    let fits = url.char_indices().take_while(|(index, _)| *index <= URL_BYTES_MAX);
    let end = fits.filter(|(_, c)| matches!(c, '?' | '&')).last().map_or(0, |(index, _)| index);
    url.get(..end).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers exports of a token, each of which ends at once, and returns their ids.
    fn start(exports: &Arc<Exports>, token: &str, count: usize, url: &str) -> Vec<String> {
        let metrics = Arc::new(Metrics::new());
        let start = |_| {
            let request = ExportRequest { token: token.into(), ..ExportRequest::for_test() };
            exports.start(&metrics, request, None, url, "x.csv").unwrap().id()
        };
        (0..count).map(start).collect()
    }

    fn count(exports: &Exports, token: &str) -> usize {
        exports.latest(token, usize::MAX, |_| true).len()
    }

    #[test]
    fn a_token_forgets_only_its_own_exports() {
        let exports = Arc::new(Exports::default());
        let few = start(&exports, "few", 2, "/x");
        let many = start(&exports, "many", KEPT_PER_TOKEN_MAX + 1, "/x");
        assert_eq!((count(&exports, "few"), count(&exports, "many")), (2, KEPT_PER_TOKEN_MAX));
        assert!(exports.find(&few[0]).is_some() && exports.find(&many[0]).is_none());
        assert!(exports.find(&many[1]).is_some());
    }

    #[test]
    fn above_the_total_the_token_with_most_exports_forgets() {
        let exports = Arc::new(Exports::default());
        let few = start(&exports, "few", 100, "/x");
        for number in 0..20 {
            start(&exports, &number.to_string(), KEPT_PER_TOKEN_MAX, "/x");
        }
        let kept = exports.kept.lock().by_id.len();
        assert_eq!(kept, KEPT_MAX);
        assert_eq!(count(&exports, "few"), few.len());
        assert!((0..20).all(|number| count(&exports, &number.to_string()) > 400));
    }

    #[test]
    fn running_exports_are_not_forgotten() {
        let exports = Arc::new(Exports::default());
        let metrics = Arc::new(Metrics::new());
        let request = ExportRequest { token: "a".into(), ..ExportRequest::for_test() };
        let running = exports.start(&metrics, request, None, "/x", "x.csv").unwrap();
        let ended = start(&exports, "a", KEPT_PER_TOKEN_MAX, "/x");
        assert!(exports.find(&running.id()).is_some());
        assert!(exports.find(&ended[0]).is_none());
    }

    #[test]
    fn long_urls_are_cut_between_parameters() {
        let check = |url: &str, expected: &str| {
            let exports = Arc::new(Exports::default());
            let id = start(&exports, "a", 1, url).remove(0);
            let export = exports.find(&id).unwrap();
            assert_eq!(&*export.request, expected);
            assert_eq!(export.is_request_cut, url != expected);
        };
        let long = "x".repeat(URL_BYTES_MAX);
        check("/x?a=1&b=2", "/x?a=1&b=2");
        check(&long, &long);
        check(&format!("/x?a=1&b={long}&c=3"), "/x?a=1");
        check(&format!("/x?b={long}"), "/x");
        let fits = format!("/x?a={}", "x".repeat(URL_BYTES_MAX - 5));
        check(&format!("{fits}&b=1"), &fits);
    }
}
