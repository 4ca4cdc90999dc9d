//! Sends one request to the registry, trying its URLs in turn, and reads a response of bounded length.

use std::error::Error as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use config::Login;
use parking_lot::Mutex;
use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Response, Url};

use super::health::{Monitor, RegistryOutcome};
use super::response::{Body, Failure, FailureKind, Schema, interpret};
use super::tls;
use crate::kafka::error::IngestError;

/// Maximum length of a schema including all schemas that it refers to.
pub const SCHEMA_BYTES_MAX: usize = 1 << 20;

const TYPES: &str = "application/vnd.schemaregistry.v1+json, application/json";
const REDIRECTS_MAX: usize = 3;

pub struct Client {
    http: reqwest::Client,
    endpoints: Vec<Endpoint>,
    login: Option<Login>,
    /// Index of the URL that answered last. It is tried first, because an unreachable one may cost a timeout.
    first: AtomicUsize,
    timeout: Duration,
    /// How long after a failure a URL is skipped if another one has already answered that the schema is unknown.
    unresponsive_pause: Duration,
}

/// One URL of the registry.
struct Endpoint {
    url: Url,
    /// Time of the last failure; `None` if the last request succeeded.
    unresponsive_since: Mutex<Option<Instant>>,
}

impl Client {
    pub fn new(
        settings: &config::Registry,
        unresponsive_pause: Duration,
    ) -> Result<Self, IngestError> {
        let http = reqwest::Client::builder()
            .user_agent(concat!("adtrail/", env!("CARGO_PKG_VERSION")))
            .timeout(settings.timeout)
            .redirect(Policy::custom(redirect))
            // Requests and credentials go only to the hosts in the settings.
            .no_proxy();
        let http = tls::apply(http, &settings.tls)?.build().map_err(IngestError::RegistryClient)?;
        let endpoint =
            |url: &Url| Endpoint { url: url.clone(), unresponsive_since: Mutex::default() };
        Ok(Self {
            http,
            endpoints: settings.urls.iter().map(endpoint).collect(),
            login: settings.login.clone(),
            first: AtomicUsize::new(0),
            timeout: settings.timeout,
            unresponsive_pause,
        })
    }

    /// Fetches the schema at a path of the API, and subtracts its length from `bytes_left`.
    pub async fn schema(
        &self,
        path: &[String],
        bytes_left: &mut usize,
        monitor: &Monitor,
    ) -> Result<Schema, Failure> {
        let outcome = self.try_endpoints(path, bytes_left, monitor).await;
        monitor.record(outcome.as_ref().err());
        outcome
    }

    /// Tries each URL until one has the schema: a replica that lags behind may not know the schema yet.
    async fn try_endpoints(
        &self,
        path: &[String],
        bytes_left: &mut usize,
        monitor: &Monitor,
    ) -> Result<Schema, Failure> {
        let first = self.first.load(Ordering::Relaxed);
        let mut greatest = FailureKind::NoResponse.because("registry.urls is empty");
        for offset in 0..self.endpoints.len() {
            let index = (first + offset) % self.endpoints.len();
            let endpoint = &self.endpoints[index];
            let unresponsive_since = *endpoint.unresponsive_since.lock();
            if greatest.kind == FailureKind::Unknown
                && unresponsive_since.is_some_and(|since| since.elapsed() < self.unresponsive_pause)
            {
                continue;
            }
            let outcome = self.request(&endpoint.url, path, bytes_left).await;
            monitor.count(RegistryOutcome::of(&outcome));
            let has_failed = outcome.as_ref().is_err_and(Failure::is_transient);
            *endpoint.unresponsive_since.lock() = has_failed.then(Instant::now);
            match outcome {
                Err(failure) if has_failed || failure.kind == FailureKind::Unknown => {
                    if offset == 0 || failure.kind > greatest.kind {
                        greatest = failure;
                    }
                }
                conclusive => {
                    self.first.store(index, Ordering::Relaxed);
                    return conclusive;
                }
            }
        }
        Err(greatest)
    }

    async fn request(
        &self,
        url: &Url,
        path: &[String],
        bytes_left: &mut usize,
    ) -> Result<Schema, Failure> {
        let (status, body) = self.get(url, path, *bytes_left).await?;
        match interpret(status, &body) {
            Some(Ok(schema)) => {
                *bytes_left -= body.bytes.len();
                Ok(schema)
            }
            Some(Err(failure)) => Err(with_url(url, failure)),
            None => Err(with_url(url, self.not_found(url).await)),
        }
    }

    /// Distinguishes an unknown schema from a URL without a registry, by a path that every registry has. If the URL is
    /// wrong, records must not become dead letters.
    async fn not_found(&self, url: &Url) -> Failure {
        let path = ["schemas".into(), "types".into()];
        match self.get(url, &path, SCHEMA_BYTES_MAX).await {
            Ok((200, _)) => FailureKind::Unknown.because("the registry has no such schema"),
            Ok((404, _)) => FailureKind::Refused.because(
                "found no schema registry at this path; check registry.urls (Apicurio's path ends \
                 in /apis/ccompat/v7)",
            ),
            Ok((status, _)) => {
                FailureKind::Outage.because(format!("responded with status {status}"))
            }
            Err(failure) => failure,
        }
    }

    async fn get(
        &self,
        url: &Url,
        path: &[String],
        bytes_max: usize,
    ) -> Result<(u16, Body), Failure> {
        let mut full_url = url.clone();
        if let Ok(mut segments) = full_url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        let mut request = self.http.get(full_url).header(ACCEPT, HeaderValue::from_static(TYPES));
        match &self.login {
            Some(Login::Basic { user, password }) => {
                request = request.basic_auth(user, Some(password.expose()));
            }
            Some(Login::Bearer(token)) => request = request.bearer_auth(token.expose()),
            None => {}
        }
        let to_failure =
            |error| with_url(url, FailureKind::NoResponse.because(self.describe(error)));
        let response = request.send().await.map_err(to_failure)?;
        let status = response.status().as_u16();
        Ok((status, read(response, bytes_max).await.map_err(to_failure)?))
    }

    /// Returns the error with its causes, which have the details.
    fn describe(&self, error: reqwest::Error) -> String {
        if error.is_timeout() {
            return format!("no response within {:?} (registry.timeout)", self.timeout);
        }
        let error = error.without_url();
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        text
    }
}

/// Adds the URL to the reason, because there may be several, unless the failure is about the schema.
fn with_url(url: &Url, failure: Failure) -> Failure {
    if failure.is_transient() {
        failure.kind.because(format!("{url}: {}", failure.reason))
    } else {
        failure
    }
}

/// Reads the body up to `bytes_max`; no more is kept in memory.
async fn read(mut response: Response, bytes_max: usize) -> reqwest::Result<Body> {
    let mut body = Body { bytes: Vec::new(), is_whole: true };
    while let Some(chunk) = response.chunk().await? {
        let remaining = bytes_max - body.bytes.len();
        body.bytes.extend_from_slice(&chunk[..chunk.len().min(remaining)]);
        if chunk.len() > remaining {
            // Dropping the response closes the connection, so the rest is not received.
            body.is_whole = false;
            break;
        }
    }
    Ok(body)
}

/// Follows redirects to the same scheme, host and port only. Responses determine how events are read, and requests may
/// carry a password or a client certificate, so only hosts named in the settings may be involved.
fn redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let origin = attempt.url().origin();
    let is_same = attempt.previous().last().is_some_and(|from| from.origin() == origin);
    if is_same && attempt.previous().len() <= REDIRECTS_MAX {
        attempt.follow()
    } else {
        attempt.stop()
    }
}
