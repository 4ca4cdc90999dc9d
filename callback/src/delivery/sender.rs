//! Makes one attempt to send a callback.

use std::collections::HashMap;
use std::error::Error as _;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Callbacks;
use parking_lot::Mutex;
use reqwest::header::RETRY_AFTER;
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::Span;
use tracing::field::Empty;

use super::gate::{Admission, Gate};
use super::queue::{Attempt, Finished, Outcome};
use super::schedule::{next_attempt_ms, retry_after_ms};
use super::timing::Timing;
use crate::answer::Verdict;
use crate::endpoint::private::shown_answer;
use crate::endpoint::request::{Request, Shown};
use crate::endpoint::{Endpoint, NotSent};
use crate::error::CallbackError;
use crate::event::CallbackEvent;
use crate::metrics;
use crate::resolver::{CheckedResolver, Lookup, refusal, system_lookup};

/// Maximum length of a response that is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// With more hosts, those without a request in progress are forgotten. Their names can come from clicks.
const HOSTS_MAX: usize = 1_024;

/// A request that has waited longer is written again, because its signature has a time.
const STALE_MS: i64 = 1_000;

/// Returns the time in milliseconds since 1970.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Sends requests, within the limits of their hosts.
pub struct Sender {
    client: Client,
    endpoints: Vec<Arc<Endpoint>>,
    hosts: Mutex<HashMap<Box<str>, Arc<Host>>>,
    clock: Clock,
    timing: Timing,
}

/// What the endpoints that use a host share.
struct Host {
    gate: Mutex<Gate>,
    requests_per_second_max: NonZeroU32,
    in_flight: Semaphore,
}

/// What became of one callback.
pub(super) struct Done {
    pub finished: Finished,
    /// Why no request was made.
    pub pause: Option<Pause>,
}

/// A host gets no further request for some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pause {
    pub until_ms: i64,
    /// The host fails, or has asked for it: others may still get requests.
    pub is_closed: bool,
}

/// What a request has led to.
struct Reply {
    status: Option<u16>,
    verdict: Verdict,
    retry_after_ms: Option<i64>,
    /// The host may have taken it, although the verdict is a failure.
    maybe_taken: bool,
    answer: Box<str>,
}

impl Sender {
    /// # Errors
    /// If the HTTP client cannot be built.
    pub fn new(
        endpoints: Vec<Arc<Endpoint>>,
        settings: &Callbacks,
        clock: Clock,
        timing: Timing,
    ) -> Result<Self, CallbackError> {
        Self::with_lookup(endpoints, settings, clock, timing, system_lookup())
    }

    pub(super) fn with_lookup(
        endpoints: Vec<Arc<Endpoint>>,
        settings: &Callbacks,
        clock: Clock,
        timing: Timing,
        lookup: Lookup,
    ) -> Result<Self, CallbackError> {
        metrics::register();
        let client = Client::builder()
            .user_agent(concat!("adtrail/", env!("CARGO_PKG_VERSION")))
            .timeout(timing.request_timeout)
            .connect_timeout(timing.connect_timeout)
            .redirect(Policy::none())
            .referer(false)
            // A proxy would resolve the name again.
            .no_proxy()
            .dns_resolver(CheckedResolver::new(lookup, &settings.allow_loopback))
            .build()
            .map_err(CallbackError::Client)?;
        Ok(Self { client, endpoints, hosts: Mutex::default(), clock, timing })
    }

    pub fn endpoints(&self) -> &[Arc<Endpoint>] {
        &self.endpoints
    }

    /// Makes the first attempt of a callback that is in no outbox, for a test of the endpoint by a person.
    pub async fn try_once(&self, endpoint: &Endpoint, event: &CallbackEvent) -> Finished {
        self.send(endpoint, event, 0).await.finished
    }

    pub(super) fn now_ms(&self) -> i64 {
        (self.clock)()
    }

    pub(super) fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Makes an attempt after this many others, unless the host must not get a request now.
    pub(super) async fn send(
        &self,
        endpoint: &Endpoint,
        event: &CallbackEvent,
        attempts: u32,
    ) -> Done {
        let written_ms = self.now_ms();
        let request = match endpoint.prepare(event, written_ms) {
            Ok(request) => request,
            Err(not_sent) => return Done::without_request(written_ms, not_sent),
        };
        let host = self.host(&request.host);
        let permit = timeout(self.timing.rate_wait_max, host.in_flight.acquire()).await;
        // The semaphore is never closed, but others may use the host for longer than the lease.
        let Ok(Ok(_permit)) = permit else {
            let wait_ms = i64::try_from(self.timing.poll_interval.as_millis()).unwrap_or(i64::MAX);
            return Done::postponed(self.now_ms().saturating_add(wait_ms), false);
        };
        let (admission, is_closed) = host.admit(self.now_ms(), &self.timing);
        match admission {
            Admission::Later { at_ms } => return Done::postponed(at_ms, is_closed),
            Admission::Go { wait_ms: 0 } => {}
            Admission::Go { wait_ms } => {
                tokio::time::sleep(Duration::from_millis(wait_ms.unsigned_abs())).await;
            }
        }
        let now_ms = self.now_ms();
        let request = if now_ms.saturating_sub(written_ms) < STALE_MS {
            Ok(request)
        } else {
            endpoint.prepare(event, now_ms)
        };
        match request {
            Ok(request) => self.attempt(endpoint, event, attempts, &host, request).await,
            Err(not_sent) => {
                host.gate.lock().answered();
                Done::without_request(now_ms, not_sent)
            }
        }
    }

    async fn attempt(
        &self,
        endpoint: &Endpoint,
        event: &CallbackEvent,
        attempts: u32,
        host: &Host,
        request: Request,
    ) -> Done {
        let (at_ms, started) = (self.now_ms(), Instant::now());
        let span = begin_span(endpoint, attempts);
        let (shown, signatures) = (request.shown.clone(), request.signatures.clone());
        let reply = self.request(endpoint, event, request).await;
        metrics::responded(endpoint.name(), reply.status, started.elapsed());
        let now_ms = self.now_ms();
        self.record(host, &reply, now_ms);
        let (outcome, reason) = match reply.verdict {
            Verdict::Taken => (Outcome::Sent, "taken".to_owned()),
            Verdict::Refused(reason) => (Outcome::Dead, reason),
            Verdict::Failed(reason) => {
                let made = attempts.saturating_add(1);
                let due_ms = next_attempt_ms(made, &event.id, now_ms, reply.retry_after_ms);
                let outcome = due_ms.map_or(Outcome::Dead, |due_ms| Outcome::Retry { due_ms });
                (outcome, reason)
            }
        };
        end_span(&span, reply.status, outcome);
        let attempt = Attempt {
            at_ms,
            status: reply.status,
            // A reason may have a text of the response.
            reason: shown_answer(endpoint, event, &signatures, reason.as_bytes()),
            request: shown,
            maybe_sent: reply.maybe_taken,
            answer: reply.answer,
        };
        Done { finished: Finished { outcome, attempt: Some(attempt) }, pause: None }
    }

    fn record(&self, host: &Host, reply: &Reply, now_ms: i64) {
        let mut gate = host.gate.lock();
        match reply.status {
            None | Some(500..) => gate.failed(now_ms, &self.timing),
            Some(_) => gate.answered(),
        }
        if let (Some(429 | 503), Some(wait_ms)) = (reply.status, reply.retry_after_ms) {
            gate.rest(now_ms, wait_ms);
        }
    }

    async fn request(&self, endpoint: &Endpoint, event: &CallbackEvent, request: Request) -> Reply {
        let Request { method, url, headers, body, signatures, .. } = request;
        let sent = self.client.request(method, url).headers(headers).body(body).send().await;
        let mut response = match sent {
            Ok(response) => response,
            Err(error) => return self.no_response(None, error),
        };
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after_ms = retry_after.and_then(|value| retry_after_ms(value, self.now_ms()));
        let body = match read(&mut response).await {
            Ok(body) => body,
            Err(error) => return self.no_response(Some(status.as_u16()), error),
        };
        Reply {
            status: Some(status.as_u16()),
            verdict: Verdict::of(status, &body, endpoint.success()),
            retry_after_ms,
            maybe_taken: status == StatusCode::GATEWAY_TIMEOUT,
            answer: shown_answer(endpoint, event, &signatures, &body),
        }
    }

    /// A response that does not end is none: the host may have taken the callback, or not.
    fn no_response(&self, status: Option<u16>, error: reqwest::Error) -> Reply {
        // Without a connection nothing was sent.
        let maybe_taken = !error.is_connect();
        let reason = match refusal(&error) {
            Some(refused) => refused.to_string(),
            None if maybe_taken && error.is_timeout() => {
                format!("no response within {:?}", self.timing.request_timeout)
            }
            None => describe(error),
        };
        Reply {
            status,
            verdict: Verdict::Failed(reason),
            retry_after_ms: None,
            maybe_taken,
            answer: Box::default(),
        }
    }

    fn host(&self, name: &str) -> Arc<Host> {
        let mut hosts = self.hosts.lock();
        if let Some(host) = hosts.get(name) {
            return host.clone();
        }
        if hosts.len() >= HOSTS_MAX {
            hosts.retain(|_, host| Arc::strong_count(host) > 1);
        }
        let host = Arc::new(self.new_host(name));
        hosts.insert(name.into(), host.clone());
        host
    }

    /// A host has the least limits of the endpoints that use it.
    fn new_host(&self, name: &str) -> Host {
        let users = || self.endpoints.iter().filter(|endpoint| endpoint.may_use(name));
        let rate = users().map(|endpoint| endpoint.requests_per_second_max()).min();
        let in_flight_max = users().map(|endpoint| endpoint.in_flight_max()).min().unwrap_or(1);
        Host {
            gate: Mutex::new(Gate::new()),
            requests_per_second_max: rate.unwrap_or(NonZeroU32::MIN),
            in_flight: Semaphore::new(usize::try_from(in_flight_max).unwrap_or(1)),
        }
    }
}

impl Host {
    /// Asks for a request. Returns also whether the host is closed.
    fn admit(&self, now_ms: i64, timing: &Timing) -> (Admission, bool) {
        let mut gate = self.gate.lock();
        let admission = gate.admit(self.requests_per_second_max, now_ms, timing);
        (admission, gate.is_closed(now_ms))
    }
}

impl Done {
    fn postponed(at_ms: i64, is_closed: bool) -> Self {
        let outcome = Outcome::Postponed { due_ms: at_ms };
        let pause = Pause { until_ms: at_ms, is_closed };
        Self { finished: Finished { outcome, attempt: None }, pause: Some(pause) }
    }

    fn without_request(at_ms: i64, not_sent: NotSent) -> Self {
        let (outcome, reason) = match not_sent {
            NotSent::Unwanted(reason) => (Outcome::Dropped, reason.into()),
            NotSent::Impossible(reason) => (Outcome::Dead, reason.into()),
        };
        let attempt = Attempt {
            at_ms,
            status: None,
            reason,
            request: Shown::default(),
            maybe_sent: false,
            answer: Box::default(),
        };
        Self { finished: Finished { outcome, attempt: Some(attempt) }, pause: None }
    }
}

/// Begins the span of an attempt. It has no text of the event, the request or the response.
fn begin_span(endpoint: &Endpoint, attempts: u32) -> Span {
    tracing::info_span!(
        target: config::TRACE_TARGET,
        "callback",
        otel.kind = "client",
        otel.status_code = Empty,
        endpoint = endpoint.name(),
        attempt = i64::from(attempts).saturating_add(1),
        status = Empty,
        outcome = Empty,
    )
}

fn end_span(span: &Span, status: Option<u16>, outcome: Outcome) {
    span.record("status", status.map(i64::from));
    span.record("outcome", outcome.name());
    if outcome != Outcome::Sent {
        span.record("otel.status_code", "ERROR");
    }
}

/// Reads a body up to a limit; the rest is not received.
async fn read(response: &mut Response) -> reqwest::Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = ANSWER_BYTES_MAX - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() >= room {
            break;
        }
    }
    Ok(body)
}

/// Returns the error with its causes, which have the details, and without the URL.
fn describe(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
