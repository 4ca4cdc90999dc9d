//! Where the schemas of Avro messages are asked for.

use std::path::{Path, PathBuf};
use std::time::Duration;

use url::Url;

use super::tls::{self, Tls};
use crate::parse::duration;
use crate::parse::error::Problem;
use crate::parse::secret::Secret;
use crate::parse::section::Section;

/// A registry that speaks Confluent's API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registry {
    /// Of one registry, tried in turn; at least one, without credentials, query and fragment.
    pub urls: Vec<Url>,
    pub login: Option<Login>,
    pub tls: Tls,
    /// Folder of the schemas that were found, for a start while the registry is down.
    pub cache: PathBuf,
    /// Of one request, from its beginning to the last byte of the answer.
    pub timeout: Duration,
    /// After this long a schema that the registry did not have is asked for again.
    pub unknown_schema_retry: Duration,
}

/// What is said with every request to be let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    Basic { user: Box<str>, password: Secret },
    Bearer(Secret),
}

/// `None`: without URLs there is no registry.
pub(crate) fn read(registry: &mut Section<'_>, store: &Path) -> Option<Registry> {
    let urls = registry.texts("urls", parse_url).unwrap_or_default();
    let user = registry.text("user", parse_filled);
    let password = registry.secret("password");
    let token = registry.secret("token");
    let tls = tls::read(registry);
    let cache = registry.path("cache");
    let timeout_ms = registry.text("timeout", |text| parse_ms_from(text, 1, "1ms"));
    let again_ms = registry.text("unknown_schema_retry", |text| parse_ms_from(text, 1_000, "1s"));
    if urls.is_empty() {
        return None;
    }
    refuse_contradictions(registry, token.as_ref());
    let login = match (user, password, token) {
        (Some(user), Some(password), _) => Some(Login::Basic { user, password }),
        (_, _, token) => token.map(Login::Bearer),
    };
    Some(Registry {
        urls,
        login,
        tls,
        cache: cache.unwrap_or_else(|| default_cache(store)),
        timeout: Duration::from_millis(timeout_ms.unwrap_or(10_000)),
        unknown_schema_retry: Duration::from_millis(again_ms.unwrap_or(60_000)),
    })
}

/// Each is told at the key that lacks the other one, or at the later of two that exclude another.
fn refuse_contradictions(registry: &mut Section<'_>, token: Option<&Secret>) {
    registry.require_both(["user", "password"]);
    registry.require_both(["certificate", "key"]);
    // As the rules of HTTP have it; anything else would fail with each request.
    let is_sendable = |token: &Secret| token.expose().bytes().all(|byte| byte.is_ascii_graphic());
    if !token.is_none_or(is_sendable) {
        let problem = "expected ASCII characters without spaces and ends of lines";
        registry.contradict("token", problem.into());
    }
    match registry.last_given(["user", "token"]) {
        Some(later) if registry.is_given("user") && registry.is_given("token") => {
            let other = if later == "user" { "token" } else { "user" };
            let problem = format!("expected no registry.{other} beside it: one way to log in");
            registry.contradict(later, problem);
        }
        _ => {}
    }
}

/// Beside the store and not in it: a store is not made in a folder with other files, and a command
/// may ask for a schema before there is one.
fn default_cache(store: &Path) -> PathBuf {
    match store.file_name() {
        Some(name) => {
            let mut name = name.to_owned();
            name.push("-schemas");
            store.with_file_name(name)
        }
        // The working directory or the like has no name to be put beside.
        None => store.join("schemas"),
    }
}

fn parse_url(text: &str) -> Result<Url, Problem> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.ok_or(r#"expected a URL such as "http://registry:8081", also with a path"#)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a name or password within the URL, \
                    expected them as registry.user and registry.password"
            .into());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("expected a URL without a query and a fragment".into());
    }
    Ok(url)
}

fn parse_filled(text: &str) -> Result<Box<str>, Problem> {
    if text.is_empty() { Err("expected a text that is not empty".into()) } else { Ok(text.into()) }
}

fn parse_ms_from(text: &str, min_ms: u64, min: &str) -> Result<u64, Problem> {
    let ms = duration::parse_ms(text)?;
    if ms < min_ms { Err(format!("expected at least {min:?}").into()) } else { Ok(ms) }
}
