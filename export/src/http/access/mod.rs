//! Who may see what. Every request passes here before any route is asked: a [`Caller`] is known by
//! its token, and a path that names an app it may not see leads nowhere, whatever is behind it. A
//! browser has its token in a cookie: see [`session`].

pub(crate) mod session;

use std::collections::HashMap;
use std::sync::Arc;

use attribution::facts::event::Pid;
use attribution::rules::policy::{AppPolicy, Policy};
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{RequestExt, Router};
use config::{Token, TokenApps, TokenDigest, token_id};
use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::Problem;
use crate::ExportError;
use crate::http::refusal::Refusal;
use crate::metrics::{Metrics, Refused};

/// The parameter of paths that is an app's key.
const APP: &str = "app";

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
            Some(expires) if expires <= now => Err(Refusal::ExpiryFloor(expires)),
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

/// What the gate looks at; cheap to clone.
#[derive(Clone)]
pub(crate) struct Gate {
    pub access: Arc<Access>,
    pub policy: Arc<Policy>,
    pub metrics: Arc<Metrics>,
}

impl Gate {
    /// Puts the gate before all routes of the router, and before what it answers where there is
    /// none. Behind it a [`Caller`] is among each request's extensions.
    pub fn before(self, router: Router) -> Router {
        router.layer(axum::middleware::from_fn_with_state(self, pass))
    }

    /// The problem that a refusal is answered with, counted.
    pub fn refuse(&self, refusal: Refusal) -> Problem {
        self.metrics.refused(match refusal {
            Refusal::NoToken => Refused::NoToken,
            Refusal::Malformed | Refusal::Unknown => Refused::BadToken,
            Refusal::ExpiryFloor(_) => Refused::ExpiryFloor,
            Refusal::Downloads { .. } => Refused::Downloads,
        });
        refusal.into()
    }

    async fn check(&self, request: &mut Request) -> Result<Caller, Problem> {
        let caller = self.access.admit(request.method(), request.headers(), Timestamp::now());
        let caller = caller.map_err(|refusal| self.refuse(refusal))?.clone();
        let parameters = match request.extract_parts::<RawPathParams>().await {
            Ok(parameters) => parameters,
            Err(RawPathParamsRejection::InvalidUtf8InPathParam(_)) => {
                return Err(Problem::path_not_found(request.uri().path()));
            }
            // Nothing is at this path, whoever asks.
            Err(_) => return Ok(caller),
        };
        for (_, key) in parameters.iter().filter(|(name, _)| *name == APP) {
            let app = self.policy.app_by_key(key);
            if !app.is_some_and(|app| caller.can_read(app.pid)) {
                app.into_iter().for_each(|_| self.metrics.refused(Refused::App));
                return Err(ExportError::UnknownApp(key.into()).into());
            }
        }
        Ok(caller)
    }
}

async fn pass(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    match gate.check(&mut request).await {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

#[cfg(test)]
mod tests;
