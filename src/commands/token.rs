//! `adtrail token`: creates API tokens.

use anyhow::Context;
use attribution::facts::printable::printable;
use config::{Config, SECRET_CHARS, TOKEN_PREFIX, TokenDigest, parse_expiry, parse_token_id};
use jiff::Timestamp;
use toml::Value;

use super::{UsageError, load, print};
use crate::cli::{NewToken, Token};
use crate::telemetry::write_stderr;

/// Length of a generated id.
const ID_CHARS: usize = 8;

pub fn run(command: &Token) -> anyhow::Result<()> {
    let Token::New(options) = command;
    let expires = options.expires.as_deref();
    expires.map_or(Ok(()), |expires| check_expires(expires, Timestamp::now()))?;
    let id = match &options.id {
        Some(id) => parse_token_id(id).map_err(|problem| wrong("--id", &problem, id))?,
        None => random(b"abcdefghijklmnopqrstuvwxyz0123456789", ID_CHARS)?.into(),
    };
    check_settings(options, &id)?;
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let secret = random(alphabet, SECRET_CHARS)?;
    let token = format!("{TOKEN_PREFIX}{id}_{secret}");
    print(format!("{token}\n\n{}", entry(&id, &token, options)).as_bytes())?;
    write_stderr(format_args!(
        "The first line is the token. It is shown only once: hand it over and keep it secret. Add the other \
         lines to the settings and run `adtrail reload`.\n"
    ));
    Ok(())
}

fn wrong(option: &str, problem: &str, value: &str) -> UsageError {
    UsageError(format!("{option}: {problem}: {value:?}"))
}

fn check_expires(text: &str, now: Timestamp) -> Result<(), UsageError> {
    let expires = parse_expiry(text).map_err(|problem| wrong("--expires", &problem, text))?;
    if expires <= now {
        Err(wrong("--expires", "expected a time in the future", text))
    } else {
        Ok(())
    }
}

/// Rejects an id that is in use, and warns of unknown apps. Missing or invalid settings only cause a warning.
fn check_settings(options: &NewToken, id: &str) -> Result<(), UsageError> {
    let config = match load(&options.settings) {
        Ok(config) => config,
        Err(UsageError(problem)) => {
            let problem = problem.lines().next().unwrap_or_default();
            tracing::warn!("the token is not checked against the settings: {problem}");
            return Ok(());
        }
    };
    let known = if options.write { &config.write_tokens } else { &config.tokens };
    if known.iter().any(|token| &*token.id == id) {
        return Err(wrong("--id", "the settings have a token with this id already", id));
    }
    for key in &options.app {
        if config.policy.app_by_key(key).is_none() {
            let known = known_apps(&config);
            let key = printable(key);
            tracing::warn!("no such app is configured: {key}; known: {known}");
        }
    }
    Ok(())
}

fn known_apps(config: &Config) -> String {
    let mut keys: Vec<_> = config.policy.apps().map(|app| &*app.key).collect();
    keys.sort_unstable();
    if keys.is_empty() { "none".into() } else { keys.join(", ") }
}

/// Returns the token's entry for the settings file.
fn entry(id: &str, token: &str, options: &NewToken) -> String {
    let apps: Vec<&str> =
        if options.all_apps { vec!["*"] } else { options.app.iter().map(String::as_str).collect() };
    let text = |text: &str| Value::from(text).to_string();
    let apps: Vec<_> = apps.into_iter().map(text).collect();
    let list = if options.write { "write_tokens" } else { "tokens" };
    let mut entry = format!(
        "[[{list}]]\nid = {}\nsha256 = {}\napps = [{}]\n",
        text(id),
        text(&TokenDigest::of(token).to_hex()),
        apps.join(", ")
    );
    if let Some(expires) = &options.expires {
        entry.push_str(&format!("expires = {}\n", text(expires)));
    }
    entry
}

/// Returns `count` random characters, uniformly distributed over the alphabet.
fn random(alphabet: &[u8], count: usize) -> anyhow::Result<String> {
    // Bytes beyond the last multiple of the alphabet's length are dropped: they would favour its first characters.
    let fair = u8::MAX as usize / alphabet.len() * alphabet.len();
    let mut text = String::with_capacity(count);
    while text.len() < count {
        let mut bytes = [0; 64];
        getrandom::fill(&mut bytes).context("the system's random number generator failed")?;
        let fair = bytes.iter().map(|byte| usize::from(*byte)).filter(|byte| *byte < fair);
        let chosen = fair.map(|byte| char::from(alphabet[byte % alphabet.len()]));
        text.extend(chosen.take(count - text.len()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn secrets_are_different_and_use_all_characters() {
        let mut seen = BTreeSet::new();
        let mut characters = BTreeSet::new();
        for _ in 0..1_000 {
            let secret = random(b"abcdefghijk", 32).unwrap();
            assert_eq!(secret.len(), 32);
            characters.extend(secret.chars());
            assert!(seen.insert(secret));
        }
        assert_eq!(characters.into_iter().collect::<String>(), "abcdefghijk");
    }

    #[test]
    fn the_expiry_of_a_token_must_be_in_the_future() {
        let now = "2026-03-10T12:00:00Z".parse().unwrap();
        let check = |text: &str, expected: Option<&str>| {
            let problem = check_expires(text, now).err().map(|problem| problem.to_string());
            assert_eq!(problem.as_deref(), expected);
        };
        check("2026-03-10", None);
        check("2026-03-10T12:00:01Z", None);
        check("2026-03-09", Some("--expires: expected a time in the future: \"2026-03-09\""));
        let now = "2026-03-10T12:00:00Z";
        check(now, Some(&*format!("--expires: expected a time in the future: {now:?}")));
    }
}
