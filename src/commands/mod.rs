//! The commands, one module each, and their shared helpers.

pub mod callbacks;
pub mod catalogue;
pub mod check_config;
pub mod check_events;
pub mod collector;
pub mod conformance;
pub mod download;
pub mod explain;
pub mod hbase;
pub mod health;
pub mod link;
pub mod log_level;
pub mod maintenance;
pub mod peek;
pub mod regions;
pub mod reload;
pub mod replay;
pub mod replay_dlq;
pub mod run;
pub(crate) mod temp_files;
pub mod token;

use std::fs::{OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use attribution::facts::event::EventTime;
use attribution::rules::policy::AppPolicy;
use config::nearest::distance;
use config::{Config, Sources};
use jiff::Timestamp;
use tempfile::NamedTempFile;

use crate::cli::Settings;
use crate::telemetry;
use temp_files::TempPath;

/// Invalid settings or options: the command exits with 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// Loads the configuration from file, environment and flags.
fn load(settings: &Settings) -> Result<Config, UsageError> {
    let sources = Sources {
        file: settings.config.as_deref(),
        environment: environment()?,
        flags: settings.set.clone(),
    };
    let config = config::load(&sources).map_err(|errors| UsageError(errors.to_string()))?;
    config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    Ok(config)
}

/// Like [`load`], for a command that connects to Kafka: checks the client's settings too.
fn load_for_kafka(settings: &Settings) -> Result<Config, UsageError> {
    let config = load(settings)?;
    ingest::kafka::settings::check(&config.kafka)
        .map_err(|errors| UsageError(errors.to_string()))?;
    ingest::check_formats(&config).map_err(|error| UsageError(error.to_string()))?;
    Ok(config)
}

/// Returns the environment variables with the prefix of settings. One that is not UTF-8 is an error.
fn environment() -> Result<Vec<(String, String)>, UsageError> {
    let prefixed = std::env::vars_os()
        .filter(|(name, _)| name.as_encoded_bytes().starts_with(config::PREFIX.as_bytes()));
    let texts = prefixed.map(|(name, value)| {
        let shown = name.to_string_lossy().into_owned();
        let not_utf8 = |_| UsageError(format!("environment variable {shown}: not UTF-8 text"));
        Ok((name.into_string().map_err(not_utf8)?, value.into_string().map_err(not_utf8)?))
    });
    texts.collect()
}

fn require_apps(config: &Config, settings: &Settings) -> Result<(), UsageError> {
    if config.policy.apps().next().is_some() {
        return Ok(());
    }
    let file = settings.config.as_deref().unwrap_or(Path::new(config::DEFAULT_FILE));
    Err(UsageError(if settings.config.is_none() && !file.exists() {
        format!(
            "no app is configured: there is no {} in this folder; name a file with --config",
            file.display()
        )
    } else {
        format!("{}: no app is configured: add [[apps]] with pid and key", file.display())
    }))
}

fn require_embedded(config: &Config, instead: &str) -> Result<(), UsageError> {
    match config.store.hbase {
        None => Ok(()),
        Some(_) => Err(UsageError(format!(
            "store.kind is \"hbase\", but this command needs an embedded store: {instead}"
        ))),
    }
}

/// Returns the app that `--app` names.
fn known_app<'c>(
    config: &'c Config,
    settings: &Settings,
    key: &str,
) -> Result<&'c AppPolicy, UsageError> {
    require_apps(config, settings)?;
    config.policy.app_by_key(key).ok_or_else(|| {
        let keys = config.policy.apps().map(|app| &*app.key);
        unknown_app("no such app is configured", key, keys.collect())
    })
}

fn unknown_app(problem: &str, key: &str, known: Vec<&str>) -> UsageError {
    unknown_name("--app", problem, key, known)
}

/// Returns an error about the name in an option, which lists all known names, or the most similar ones.
fn unknown_name(option: &str, problem: &str, name: &str, mut known: Vec<&str>) -> UsageError {
    const SHOWN_MAX: usize = 5;
    known.sort_by_cached_key(|known| (distance(known, name), *known));
    let total = known.len();
    let label = match total {
        0 => "there are none".to_owned(),
        1..=SHOWN_MAX => "known: ".to_owned(),
        _ => format!("the nearest of {total}: "),
    };
    let shown = known[..total.min(SHOWN_MAX)].join(", ");
    UsageError(format!("{option}: {problem}: {name:?}; {label}{shown}"))
}

/// Returns the canonical path. Its last components need not exist.
fn canonical_path(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let (existing, canonical) =
        path.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)))?;
    Some(canonical.join(path.strip_prefix(existing).ok()?))
}

/// Formats a time in UTC, always with milliseconds.
fn utc(time: EventTime) -> String {
    let time = i64::try_from(time.millis()).ok().map(Timestamp::from_millisecond);
    format!("{:.3}", time.and_then(Result::ok).unwrap_or_default())
}

/// Writes a line of JSON to standard output.
fn write_line(line: &serde_json::Value) -> anyhow::Result<()> {
    print(format!("{line}\n").as_bytes())
}

/// Writes to standard output.
pub(crate) fn print(shown: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(shown).and_then(|()| out.flush()).context("standard output cannot be written")
}

/// Shows a progress bar for the bytes of a copy. Returns the function that updates it.
fn copy_progress() -> impl FnMut(u64, u64) {
    const BAR: &str = "{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    let bar = telemetry::bar(Some(0), BAR);
    move |done, total| telemetry::set_progress(&bar, done, total)
}

fn unwritable(path: &Path) -> String {
    format!("cannot be written: {}", path.display())
}

/// Checks whether a path exists and is not a regular file, such as a pipe.
fn is_stream(path: &Path) -> bool {
    path.exists() && !path.is_file()
}

/// The target of a command's rows. A file is written under a temporary name and renamed once it is complete: an
/// interrupted command leaves the previous file unchanged.
enum Output {
    File { target: PathBuf, partial: BufWriter<NamedTempFile>, _temp: TempPath },
    Stream(Box<dyn Write>),
}

impl Output {
    /// Without a path, the target is standard output. If the path is not a regular file (a pipe, for example), it is
    /// written directly.
    fn new(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self::Stream(Box::new(io::stdout().lock()))) };
        if is_stream(path) {
            let stream = OpenOptions::new().write(true).open(path);
            let stream = stream.with_context(|| unwritable(path))?;
            return Ok(Self::Stream(Box::new(BufWriter::new(stream))));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let partial = tempfile::Builder::new()
            .prefix(".adtrail-")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder.unwrap_or(Path::new(".")))
            .with_context(|| unwritable(path))?;
        let temp = TempPath::new(partial.path())?;
        let partial = BufWriter::new(partial);
        Ok(Self::File { target: path.to_owned(), partial, _temp: temp })
    }

    /// Calls `write` with a sink that writes to the output, and finishes the output.
    fn write_with<T, E: Into<anyhow::Error>>(
        mut self,
        write: impl FnOnce(&mut dyn FnMut(export::Chunk) -> ControlFlow<()>) -> Result<T, E>,
    ) -> anyhow::Result<T> {
        let mut written = Ok(());
        let outcome = write(&mut |chunk| {
            written = self.write(&chunk.bytes);
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let outcome = outcome.map_err(Into::into)?;
        written.context("the rows cannot be written")?;
        self.finish().context("the rows cannot be written")?;
        Ok(outcome)
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            Self::File { partial, .. } => partial.write_all(data),
            Self::Stream(stream) => stream.write_all(data),
        }
    }

    /// Flushes the output, and moves a file to its target.
    fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::File { target, partial, .. } => {
                let partial = partial.into_inner().map_err(io::IntoInnerError::into_error)?;
                partial.persist(&target).with_context(|| unwritable(&target))?;
            }
            Self::Stream(mut stream) => stream.flush()?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_unknown(known: &[&str], expected: &str) {
        let problem = unknown_app("no such app is configured", "app-10", known.to_vec());
        let expected = format!("--app: no such app is configured: \"app-10\"; {expected}");
        assert_eq!(problem.to_string(), expected);
    }

    #[test]
    fn an_unknown_app_error_lists_similar_keys() {
        check_unknown(&[], "there are none");
        check_unknown(&["shop"], "known: shop");
        check_unknown(&["shop", "app-2", "app-1"], "known: app-1, app-2, shop");
        let many: Vec<String> = (0..1000).rev().map(|number| format!("app-{number}")).collect();
        let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
        many.retain(|key| *key != "app-10");
        let nearest = "the nearest of 999: app-0, app-1, app-100, app-101, app-102";
        check_unknown(&many, nearest);
    }

    #[test]
    fn times_always_have_milliseconds() {
        for (millis, expected) in [
            (1_773_144_000_000, "2026-03-10T12:00:00.000Z"),
            (1_773_144_000_420, "2026-03-10T12:00:00.420Z"),
        ] {
            assert_eq!(utc(EventTime::from_millis(millis).unwrap()), expected);
        }
    }
}
