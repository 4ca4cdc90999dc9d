//! One request to the registry: its URLs in turn, an answer of bounded length, a verdict.

use std::error::Error as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use config::Login;
use parking_lot::Mutex;
use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Response, Url};

use super::health::{Monitor, RegistryOutcome};
use super::response::{Body, Failure, Schema, Verdict, judge};
use super::tls;
use crate::kafka::error::IngestError;

/// What a schema may have with all that it refers to.
pub const SCHEMA_BYTES_MAX: usize = 1 << 20;

const TYPES: &str = "application/vnd.schemaregistry.v1+json, application/json";
const REDIRECTS_MAX: usize = 3;

pub struct Client {
    http: reqwest::Client,
    places: Vec<Place>,
    login: Option<Login>,
    /// Index of the place that answered last: it is asked first, as a dead one may cost a timeout.
    first: AtomicUsize,
    timeout: Duration,
    /// For this long a place that did not answer is not asked for a second opinion.
    silent_for: Duration,
}

/// Where the registry is.
struct Place {
    url: Url,
    /// When it last failed to answer.
    silent_since: Mutex<Option<Instant>>,
}

impl Client {
    pub fn new(settings: &config::Registry, silent_for: Duration) -> Result<Self, IngestError> {
        let http = reqwest::Client::builder()
            .user_agent(concat!("adtrail/", env!("CARGO_PKG_VERSION")))
            .timeout(settings.timeout)
            .redirect(Policy::custom(redirect))
            // Requests go where the settings say, and passwords nowhere else.
            .no_proxy();
        let http = tls::apply(http, &settings.tls)?.build().map_err(IngestError::RegistryClient)?;
        Ok(Self {
            http,
            places: settings.urls.iter().cloned().map(Place::new).collect(),
            login: settings.login.clone(),
            first: AtomicUsize::new(0),
            timeout: settings.timeout,
            silent_for,
        })
    }

    /// The schema at a path of the API, taken off the bytes that are left.
    pub async fn schema(
        &self,
        path: &[String],
        bytes_left: &mut usize,
        monitor: &Monitor,
    ) -> Result<Schema, Failure> {
        let outcome = self.ask_in_turn(path, bytes_left, monitor).await;
        monitor.take(outcome.as_ref().err());
        outcome
    }

    /// Each place is asked until one has the schema: one that lags behind may not know it yet.
    async fn ask_in_turn(
        &self,
        path: &[String],
        bytes_left: &mut usize,
        monitor: &Monitor,
    ) -> Result<Schema, Failure> {
        let first = self.first.load(Ordering::Relaxed);
        let mut worst = Failure::Silence("registry.urls is empty".into());
        for offset in 0..self.places.len() {
            let index = (first + offset) % self.places.len();
            let place = &self.places[index];
            if matches!(worst, Failure::Unknown(_)) && place.is_silent(self.silent_for) {
                continue;
            }
            let outcome = self.ask(&place.url, path, bytes_left).await;
            monitor.count(RegistryOutcome::of(&outcome));
            let has_failed = outcome.as_ref().is_err_and(Failure::may_pass);
            place.set_silent(has_failed);
            match outcome {
                Err(failure) if has_failed || matches!(failure, Failure::Unknown(_)) => {
                    if offset == 0 || rank(&failure) > rank(&worst) {
                        worst = failure;
                    }
                }
                answer => {
                    self.first.store(index, Ordering::Relaxed);
                    return answer;
                }
            }
        }
        Err(worst)
    }

    async fn ask(
        &self,
        url: &Url,
        path: &[String],
        bytes_left: &mut usize,
    ) -> Result<Schema, Failure> {
        let (status, body) = self.get(url, path, *bytes_left).await?;
        match judge(status, &body) {
            Verdict::Schema(schema) => {
                *bytes_left -= body.bytes.len();
                Ok(schema)
            }
            Verdict::Failure(failure) => Err(self.at(url, failure)),
            Verdict::NotFound => Err(self.at(url, self.not_found(url).await)),
        }
    }

    /// Whether there is a registry that does not know a path, or none at all: then the URL is
    /// wrong, and no record may suffer for it. Each registry knows its kinds of schemas.
    async fn not_found(&self, url: &Url) -> Failure {
        let path = ["schemas".into(), "types".into()];
        match self.get(url, &path, SCHEMA_BYTES_MAX).await {
            Ok((200, _)) => Failure::Unknown("the registry has no such schema".into()),
            Ok((404, _)) => Failure::Refused(
                "there is no registry at this path: check registry.urls (Apicurio's ends in \
                 /apis/ccompat/v7)"
                    .into(),
            ),
            Ok((status, _)) => Failure::Outage(format!("it answers with status {status}")),
            Err(failure) => failure,
        }
    }

    async fn get(
        &self,
        url: &Url,
        path: &[String],
        bytes_max: usize,
    ) -> Result<(u16, Body), Failure> {
        let mut whole = url.clone();
        if let Ok(mut segments) = whole.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        let mut request = self.http.get(whole).header(ACCEPT, HeaderValue::from_static(TYPES));
        match &self.login {
            Some(Login::Basic { user, password }) => {
                request = request.basic_auth(user, Some(password.expose()));
            }
            Some(Login::Bearer(token)) => request = request.bearer_auth(token.expose()),
            None => {}
        }
        let no_answer = |error| self.at(url, Failure::Silence(self.describe(error)));
        let response = request.send().await.map_err(no_answer)?;
        let status = response.status().as_u16();
        Ok((status, read(response, bytes_max).await.map_err(no_answer)?))
    }

    /// With the URL that it is about: there may be several.
    fn at(&self, url: &Url, failure: Failure) -> Failure {
        match failure {
            Failure::Refused(reason) => Failure::Refused(format!("{url}: {reason}")),
            Failure::Outage(reason) => Failure::Outage(format!("{url}: {reason}")),
            Failure::Silence(reason) => Failure::Silence(format!("{url}: {reason}")),
            // Of the schema, wherever it was asked for.
            other => other,
        }
    }

    /// The error with its causes, which say what it was.
    fn describe(&self, error: reqwest::Error) -> String {
        if error.is_timeout() {
            return format!("no answer within {:?} (registry.timeout)", self.timeout);
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

impl Place {
    fn new(url: Url) -> Self {
        Self { url, silent_since: Mutex::new(None) }
    }

    fn is_silent(&self, silent_for: Duration) -> bool {
        let since = self.silent_since.lock();
        since.is_some_and(|since| since.elapsed() < silent_for)
    }

    fn set_silent(&self, is_silent: bool) {
        let mut since = self.silent_since.lock();
        *since = is_silent.then(Instant::now);
    }
}

/// Of several failures the one that decides: what one registry says of a schema counts even if
/// another is dead; what is said counts before what is not.
fn rank(failure: &Failure) -> u8 {
    match failure {
        Failure::Unknown(_) | Failure::Bad(_) => 3,
        Failure::Refused(_) => 2,
        Failure::Outage(_) => 1,
        Failure::Silence(_) => 0,
    }
}

/// As much as may be, and never more in memory.
async fn read(mut response: Response, bytes_max: usize) -> reqwest::Result<Body> {
    let mut body = Body { bytes: Vec::new(), is_whole: true };
    while let Some(chunk) = response.chunk().await? {
        let room = bytes_max - body.bytes.len();
        body.bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            // Dropping the response ends the connection; the rest never comes.
            body.is_whole = false;
            break;
        }
    }
    Ok(body)
}

/// Followed to the same scheme, host and port only. What comes back decides what events mean, and
/// what is sent may be a password or a certificate: neither is for a host that no setting names.
fn redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let place = |url: &Url| {
        (url.scheme().to_owned(), url.host_str().map(str::to_owned), url.port_or_known_default())
    };
    let is_same = attempt.previous().last().is_some_and(|from| place(from) == place(attempt.url()));
    if is_same && attempt.previous().len() <= REDIRECTS_MAX {
        attempt.follow()
    } else {
        attempt.stop()
    }
}
