//! Who may see what: a [`Caller`] is known by its token, which a browser has in a cookie: see [`session`].

pub(crate) mod session;

use std::collections::HashMap;
use std::sync::Arc;

use attribution::facts::event::Pid;
use attribution::rules::policy::{AppPolicy, Policy};
use axum::http::{HeaderMap, Method, header};
use config::{Token, TokenApps, TokenDigest, token_id};
use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::refusal::Refusal;

/// The tokens and what each may see.
#[derive(Debug)]
pub struct Access {
    tokens: HashMap<Box<str>, ApiToken>,
    /// Where there are no tokens.
    anonymous: Option<Caller>,
    /// Of no token: what one of an unknown id is compared with.
    dummy_digest: TokenDigest,
}

#[derive(Debug)]
struct ApiToken {
    digest: TokenDigest,
    expires: Option<Timestamp>,
    caller: Caller,
}

/// Who asks, on whose behalf something is read; cheap to clone. Everybody is one caller where there
/// are no tokens.
#[derive(Debug, Clone)]
pub(crate) struct Caller(Arc<Principal>);

#[derive(Debug)]
struct Principal {
    token: Option<Box<str>>,
    apps: TokenApps,
    downloads: Arc<Semaphore>,
    downloads_max: usize,
}

impl Access {
    /// Without tokens everybody may see all. So many downloads each caller may have at a time.
    pub fn new(tokens: &[Token], downloads_per_token_max: usize) -> Self {
        let caller = |token: Option<&Token>| {
            Caller(Arc::new(Principal {
                token: token.map(|token| token.id.clone()),
                apps: token.map_or(TokenApps::All, |token| token.apps.clone()),
                downloads: Arc::new(Semaphore::new(downloads_per_token_max)),
                downloads_max: downloads_per_token_max,
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
        }
    }

    /// Whether there are no tokens.
    pub(crate) fn is_open(&self) -> bool {
        self.anonymous.is_some()
    }

    /// Who sends these headers, if it is somebody.
    pub(crate) fn known(&self, headers: &HeaderMap) -> Option<Caller> {
        self.admit(&Method::GET, headers, Timestamp::now()).ok().cloned()
    }

    pub(crate) fn admit(
        &self,
        method: &Method,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<&Caller, Refusal> {
        if let Some(anonymous) = &self.anonymous {
            return Ok(anonymous);
        }
        match bearer(headers) {
            // Nobody else's page sends what changes or tells something in a user's name.
            Err(Refusal::NoToken) if method.is_safe() || session::is_same_origin(headers) => {
                self.admit_session(headers, now)
            }
            given => self.admit_token(given?, now),
        }
    }

    /// By the first cookie that is right; else the first says why not.
    fn admit_session(&self, headers: &HeaderMap, now: Timestamp) -> Result<&Caller, Refusal> {
        let mut why = None;
        for token in session::tokens(headers) {
            match self.admit_token(token, now) {
                Ok(caller) => return Ok(caller),
                Err(refusal) => why = why.or(Some(refusal)),
            }
        }
        Err(why.unwrap_or(Refusal::NoToken))
    }

    pub(crate) fn admit_token(&self, token: &str, now: Timestamp) -> Result<&Caller, Refusal> {
        let id = token_id(token).ok_or(Refusal::Malformed)?;
        let digest = TokenDigest::of(token);
        let admitted = self.tokens.get(id);
        // An unknown id costs what a wrong secret does.
        let expected = admitted.map_or(&self.dummy_digest, |admitted| &admitted.digest);
        let is_right = digest.matches(expected);
        let admitted = admitted.filter(|_| is_right).ok_or(Refusal::Unknown)?;
        // Only its owner is told that it was good once.
        match admitted.expires {
            Some(expires) if expires <= now => Err(Refusal::Expired(expires)),
            _ => Ok(&admitted.caller),
        }
    }
}

/// What the one `Authorization` says after `Bearer`.
fn bearer(headers: &HeaderMap) -> Result<&str, Refusal> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let first = given.next().ok_or(Refusal::NoToken)?;
    let is_one = given.next().is_none();
    let text = first.to_str().ok().filter(|_| is_one).ok_or(Refusal::Malformed)?;
    let (scheme, token) = text.split_once(' ').ok_or(Refusal::Malformed)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(token.trim()) } else { Err(Refusal::Malformed) }
}

impl Caller {
    /// The token's id, for logs.
    pub fn name(&self) -> &str {
        self.0.token.as_deref().unwrap_or("none")
    }

    pub fn token_id(&self) -> Option<&str> {
        self.0.token.as_deref()
    }

    /// Whether it may see anything of this app, its name included.
    pub fn can_read(&self, pid: Pid) -> bool {
        self.0.apps.has(pid)
    }

    /// The apps that there are for it, by pid.
    pub fn apps<'p>(&self, policy: &'p Policy) -> Vec<&'p AppPolicy> {
        let mut apps: Vec<_> = policy.apps().filter(|app| self.can_read(app.pid)).collect();
        apps.sort_by_key(|app| app.pid);
        apps
    }

    /// One of its downloads, until the permit is dropped.
    pub fn start_download(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let Principal { downloads, downloads_max, .. } = &*self.0;
        Arc::clone(downloads)
            .try_acquire_owned()
            .map_err(|_| Refusal::Downloads { downloads_max: *downloads_max })
    }
}

#[cfg(test)]
mod tests;
