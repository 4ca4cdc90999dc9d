//! Authentication and authorization. A token identifies a [`Caller`]; a browser that has signed in with one sends a
//! cookie with the id of its session instead ([`session`], [`open_sessions`]).

mod open_sessions;
pub(crate) mod session;

use std::collections::HashMap;
use std::sync::Arc;

use attribution::facts::event::Pid;
use attribution::rules::policy::{AppPolicy, Policy};
use axum::http::{HeaderMap, Method, header};
use config::{Token, TokenApps, TokenDigest, token_id};
use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::audit::NONE;
use super::refusal::{Denial, Refusal};
use open_sessions::OpenSessions;

/// Answers of a caller that may be in memory at a time.
pub(crate) const ANSWERS_PER_TOKEN_MAX: usize = 4;

/// The API tokens and what each may read.
#[derive(Debug)]
pub struct Access {
    tokens: HashMap<Box<str>, ApiToken>,
    /// The caller of every request, if no tokens are configured.
    anonymous: Option<Caller>,
    /// Belongs to no token; compared with tokens of unknown ids, so that they take as long as known ones.
    dummy_digest: TokenDigest,
    sessions: Arc<OpenSessions>,
}

#[derive(Debug)]
struct ApiToken {
    digest: TokenDigest,
    expires: Option<Timestamp>,
    caller: Caller,
}

/// On whose behalf something is read; cheap to clone. Without tokens, all requests have one caller.
#[derive(Debug, Clone)]
pub(crate) struct Caller(Arc<Principal>);

#[derive(Debug)]
struct Principal {
    token: Option<Box<str>>,
    apps: TokenApps,
    downloads: Arc<Semaphore>,
    downloads_max: usize,
    answers: Arc<Semaphore>,
}

impl Access {
    /// Without tokens, everyone may read everything. Each caller may have `downloads_per_token_max` downloads at a
    /// time.
    pub fn new(tokens: &[Token], downloads_per_token_max: usize) -> Self {
        let caller = |token: Option<&Token>| {
            Caller(Arc::new(Principal {
                token: token.map(|token| token.id.clone()),
                apps: token.map_or(TokenApps::All, |token| token.apps.clone()),
                downloads: Arc::new(Semaphore::new(downloads_per_token_max)),
                downloads_max: downloads_per_token_max,
                answers: Arc::new(Semaphore::new(ANSWERS_PER_TOKEN_MAX)),
            }))
        };
        let admitted = |token: &Token| {
            let (digest, expires) = (token.digest.clone(), token.expires);
            (token.id.clone(), ApiToken { digest, expires, caller: caller(Some(token)) })
        };
        Self {
            tokens: tokens.iter().map(admitted).collect(),
            anonymous: tokens.is_empty().then(|| caller(None)),
            dummy_digest: TokenDigest::of(""),
            sessions: Arc::default(),
        }
    }

    /// Returns the access of these tokens instead. Callers keep their downloads and answers in progress, and sessions
    /// stay open unless their token has gone or has another secret.
    #[must_use]
    pub fn with_tokens(&self, tokens: &[Token], downloads_per_token_max: usize) -> Self {
        let mut access = Self::new(tokens, downloads_per_token_max);
        access.sessions = Arc::clone(&self.sessions);
        access.anonymous =
            access.anonymous.map(|caller| caller.with_limits_of(self.anonymous.as_ref()));
        for (id, token) in &mut access.tokens {
            let before = self.tokens.get(id).map(|token| &token.caller);
            token.caller = token.caller.with_limits_of(before);
        }
        let is_kept = |id: &str| {
            let (before, after) = (self.tokens.get(id), access.tokens.get(id));
            before.zip(after).is_some_and(|(before, after)| before.digest == after.digest)
        };
        access.sessions.end_unless(is_kept);
        access
    }

    /// Checks whether no tokens are configured.
    pub(crate) fn is_open(&self) -> bool {
        self.anonymous.is_some()
    }

    /// Returns the caller that sends these headers, if it is authenticated.
    pub(crate) fn known(&self, headers: &HeaderMap) -> Option<Caller> {
        self.admit(&Method::GET, headers, Timestamp::now()).ok().cloned()
    }

    pub(crate) fn admit(
        &self,
        method: &Method,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<&Caller, Denial<'_>> {
        if let Some(anonymous) = &self.anonymous {
            return Ok(anonymous);
        }
        match bearer(headers) {
            // CSRF: a request with side effects is accepted by its cookie only if one of our own pages sent it.
            Err(Refusal::NoToken) if method.is_safe() || session::is_same_origin(headers) => {
                self.admit_cookies(headers, now)
            }
            bearer => self.admit_token(bearer?, now),
        }
    }

    /// Admits the caller of the first cookie with an open session; otherwise returns the refusal of the first cookie.
    fn admit_cookies(&self, headers: &HeaderMap, now: Timestamp) -> Result<&Caller, Denial<'_>> {
        let mut why = None;
        for id in session::ids(headers) {
            match self.admit_session(id, now) {
                Ok(caller) => return Ok(caller),
                Err(denial) => why = why.or(Some(denial)),
            }
        }
        Err(why.unwrap_or(Refusal::NoToken.into()))
    }

    /// Admits the caller of an open session whose token has not expired.
    fn admit_session(&self, id: &str, now: Timestamp) -> Result<&Caller, Denial<'_>> {
        let token = self.sessions.token(id, now).ok_or(Refusal::Session)?;
        let token = self.tokens.get(&token).ok_or(Refusal::Session)?;
        token.admit(now)
    }

    pub(crate) fn admit_token(&self, token: &str, now: Timestamp) -> Result<&Caller, Denial<'_>> {
        let id = token_id(token).ok_or(Refusal::Malformed)?;
        let digest = TokenDigest::of(token);
        let configured = self.tokens.get(id);
        // An unknown id takes as long as a wrong secret.
        let expected = configured.map_or(&self.dummy_digest, |configured| &configured.digest);
        let is_valid = digest.matches(expected);
        // Only a client with the right secret learns that the token has expired.
        match configured {
            Some(token) if is_valid => token.admit(now),
            _ => {
                let token = configured.map_or(NONE, |configured| configured.caller.name());
                Err(Denial { refusal: Refusal::Unknown, token })
            }
        }
    }

    /// Begins a session of this caller, and returns its id.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn begin_session(
        &self,
        caller: &Caller,
        now: Timestamp,
    ) -> Result<String, getrandom::Error> {
        self.sessions.begin(caller.name(), now)
    }

    /// Ends the sessions of all cookies.
    pub(crate) fn end_sessions(&self, headers: &HeaderMap) {
        session::ids(headers).for_each(|id| self.sessions.end(id));
    }
}

impl ApiToken {
    /// Returns the caller, unless the token has expired.
    fn admit(&self, now: Timestamp) -> Result<&Caller, Denial<'_>> {
        match self.expires {
            Some(expires) if expires <= now => {
                Err(Denial { refusal: Refusal::Expired(expires), token: self.caller.name() })
            }
            _ => Ok(&self.caller),
        }
    }
}

/// Returns the token of the only `Authorization` header, after `Bearer`.
fn bearer(headers: &HeaderMap) -> Result<&str, Refusal> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let first = values.next().ok_or(Refusal::NoToken)?;
    let is_only = values.next().is_none();
    let text = first.to_str().ok().filter(|_| is_only).ok_or(Refusal::Malformed)?;
    let (scheme, token) = text.split_once(' ').ok_or(Refusal::Malformed)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(token.trim()) } else { Err(Refusal::Malformed) }
}

impl Caller {
    /// Returns the caller with the semaphores that it had before a reload.
    fn with_limits_of(&self, before: Option<&Self>) -> Self {
        let Some(before) = before else { return self.clone() };
        Self(Arc::new(Principal {
            token: self.0.token.clone(),
            apps: self.0.apps.clone(),
            downloads: Arc::clone(&before.0.downloads),
            downloads_max: before.0.downloads_max,
            answers: Arc::clone(&before.0.answers),
        }))
    }

    /// The token's id or `none`, for logs.
    pub fn name(&self) -> &str {
        self.0.token.as_deref().unwrap_or(NONE)
    }

    pub fn token_id(&self) -> Option<&str> {
        self.0.token.as_deref()
    }

    /// Checks whether the caller may see anything of this app, including its name.
    pub fn can_read(&self, pid: Pid) -> bool {
        self.0.apps.has(pid)
    }

    /// Returns the apps that the caller may read, by pid.
    pub fn apps<'p>(&self, policy: &'p Policy) -> Vec<&'p AppPolicy> {
        let mut apps: Vec<_> = policy.apps().filter(|app| self.can_read(app.pid)).collect();
        apps.sort_by_key(|app| app.pid);
        apps
    }

    /// Waits for one of the caller's answers, until the permit is dropped. The result is never `None`.
    pub async fn start_answer(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.0.answers).acquire_owned().await.ok()
    }

    /// Takes one of the caller's downloads, until the permit is dropped.
    pub fn start_download(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let Principal { downloads, downloads_max, .. } = &*self.0;
        Arc::clone(downloads)
            .try_acquire_owned()
            .map_err(|_| Refusal::Downloads { downloads_max: *downloads_max })
    }
}

#[cfg(test)]
mod tests;
