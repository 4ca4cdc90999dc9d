//! Reads the connection settings of the schema registry.

use std::path::{Path, PathBuf};
use std::time::Duration;

use url::Url;

use super::tls::{self, Tls};
use crate::parse::duration;
use crate::parse::error::Problem;
use crate::parse::secret::Secret;
use crate::parse::section::Section;

/// A schema registry with the Confluent API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registry {
    /// At least one URL of the same registry, tried in turn; without credentials, query and fragment.
    pub urls: Vec<Url>,
    pub login: Option<Login>,
    pub tls: Tls,
    /// Directory of cached schemas, which allow a start while the registry is down.
    pub cache: PathBuf,
    /// Timeout of one request, including the whole response.
    pub timeout: Duration,
    /// Interval between requests for a schema that the registry does not have.
    pub unknown_schema_retry: Duration,
}

/// The credentials sent with every request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    Basic { user: Box<str>, password: Secret },
    Bearer(Secret),
}

/// Returns `None` if no URLs are set.
pub(crate) fn read(registry: &mut Section<'_>, store: &Path) -> Option<Registry> {
    let urls = registry.texts("urls", parse_url).unwrap_or_default();
    let user = registry.text("user", parse_non_empty);
    let password = registry.secret("password");
    let token = registry.secret("token");
    let tls = tls::read(registry);
    let cache = registry.path("cache");
    let timeout_ms = registry.text("timeout", |text| parse_ms_from(text, 1, "1ms"));
    let retry_ms = registry.text("unknown_schema_retry", |text| parse_ms_from(text, 1_000, "1s"));
    if urls.is_empty() {
        return None;
    }
    reject_contradictions(registry, token.as_ref());
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
        unknown_schema_retry: Duration::from_millis(retry_ms.unwrap_or(60_000)),
    })
}

/// Reports keys that require or exclude each other; of two that exclude each other, the later one.
fn reject_contradictions(registry: &mut Section<'_>, token: Option<&Secret>) {
    registry.require_both(["user", "password"]);
    registry.require_both(["certificate", "key"]);
    // With other characters in the header, every request would fail.
    let is_sendable = |token: &Secret| token.expose().bytes().all(|byte| byte.is_ascii_graphic());
    if !token.is_none_or(is_sendable) {
        let problem = "expected printable ASCII characters without spaces";
        registry.contradict("token", problem.into());
    }
    match registry.last_set(["user", "token"]) {
        Some(later) if registry.is_set("user") && registry.is_set("token") => {
            let other = if later == "user" { "token" } else { "user" };
            let problem = format!("excludes registry.{other}: only one login is allowed");
            registry.contradict(later, problem);
        }
        _ => {}
    }
}

/// Returns a path next to the store. It cannot be in the store: a command may fetch a schema before the store exists,
/// and a store is not created in a directory with other files.
fn default_cache(store: &Path) -> PathBuf {
    match store.file_name() {
        Some(name) => {
            let mut name = name.to_owned();
            name.push("-schemas");
            store.with_file_name(name)
        }
        // A path such as `.` has no name to append the suffix to.
        None => store.join("schemas"),
    }
}

fn parse_url(text: &str) -> Result<Url, Problem> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url =
        url.ok_or(r#"expected a URL such as "http://registry:8081", optionally with a path"#)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the URL contains credentials, \
                    expected them as registry.user and registry.password"
            .into());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("expected a URL without query and fragment".into());
    }
    Ok(url)
}

fn parse_non_empty(text: &str) -> Result<Box<str>, Problem> {
    if text.is_empty() { Err("expected a non-empty string".into()) } else { Ok(text.into()) }
}

fn parse_ms_from(text: &str, min_ms: u64, min: &str) -> Result<u64, Problem> {
    let ms = duration::parse_ms(text)?;
    if ms < min_ms { Err(format!("expected at least {min:?}").into()) } else { Ok(ms) }
}
