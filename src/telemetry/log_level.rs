//! What is logged: `RUST_LOG` at start, and what operators choose while the process runs.

use std::sync::OnceLock;
use std::time::Duration;

use config::TRACE_TARGET;
use export::Echo;
use export::http::admin::LogLevel;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tracing_subscriber::filter::{EnvFilter, FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::{Registry, layer, reload};

/// What is logged without `RUST_LOG`. h2 warns of each connection that breaks its limits, so that a client could fill
/// the disk with logs.
const LOGGED: &str = "info,h2=error";

/// Stands for what was logged at start.
const DEFAULT: &str = "default";

const EXPECTED: &str = "off, error, warn, info, debug, trace, default, or directives such as info,adtrail_ingest=debug";

/// For the operators' listener.
pub const LOG_LEVEL: LogLevel = LogLevel { shown, set };

static FILTER: OnceLock<Filter> = OnceLock::new();

struct Filter {
    handle: reload::Handle<EnvFilter, Registry>,
    at_start: String,
    current: Mutex<Current>,
}

struct Current {
    directives: String,
    /// The number of changes, by which a reset finds that it is obsolete.
    changes: u64,
}

/// A change that an operator requests.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    /// `None` for those of the start.
    directives: Option<String>,
    reset_after: Option<Duration>,
}

/// Returns the filter of the process.
pub(super) fn start() -> impl layer::Filter<Registry> + Send + Sync {
    let directives = std::env::var(EnvFilter::DEFAULT_ENV).ok();
    let parsed = directives.and_then(|text| Some((EnvFilter::try_new(&text).ok()?, text)));
    let (filter, at_start) = parsed.unwrap_or_else(|| (EnvFilter::new(LOGGED), LOGGED.to_owned()));
    let (reloaded, handle) = reload::Layer::new(filter);
    let current = Mutex::new(Current { directives: at_start.clone(), changes: 0 });
    // Fails only if logs have been started before.
    let _ = FILTER.set(Filter { handle, at_start, current });
    let is_logged = filter_fn(|metadata| metadata.target() != TRACE_TARGET);
    is_logged.with_max_level_hint(LevelFilter::TRACE).and(reloaded)
}

fn shown() -> String {
    FILTER.get().map_or_else(String::new, |filter| filter.current.lock().directives.clone())
}

/// Changes what is logged, and returns it. An error says what is expected.
fn set(parameters: &[(String, String)]) -> Result<String, String> {
    let change = Change::parse(parameters)?;
    FILTER.get().ok_or("logs have not been started")?.apply(change)
}

impl Filter {
    fn apply(&'static self, Change { directives, reset_after }: Change) -> Result<String, String> {
        let directives = directives.unwrap_or_else(|| self.at_start.clone());
        let mut current = self.current.lock();
        self.switch(&mut current, &directives)?;
        if let Some(after) = reset_after {
            let runtime = Handle::try_current().map_err(|error| error.to_string())?;
            runtime.spawn(self.reset(current.changes, after));
        }
        Ok(directives)
    }

    /// Returns to what was logged at start, unless there is another change before.
    async fn reset(&self, changes: u64, after: Duration) {
        tokio::time::sleep(after).await;
        let mut current = self.current.lock();
        if current.changes == changes
            && let Err(error) = self.switch(&mut current, &self.at_start)
        {
            tracing::error!(%error, "what is logged cannot be reset");
        }
    }

    fn switch(&self, current: &mut Current, directives: &str) -> Result<(), String> {
        // Patterns are only for those who start the process: a large one takes much memory.
        let builder = EnvFilter::builder().with_regex(directives == self.at_start);
        let filter = builder.parse(directives).map_err(|_| wrong(directives))?;
        let before = self.handle.with_current(EnvFilter::max_level_hint);
        // So that the line is written if it is wanted before or afterwards.
        let is_less = before.is_ok_and(|before| filter.max_level_hint() < before);
        let log = || tracing::warn!(directives, "what is logged has changed");
        if is_less {
            log();
        }
        self.handle.reload(filter).map_err(|error| error.to_string())?;
        if !is_less {
            log();
        }
        current.directives = directives.to_owned();
        current.changes += 1;
        Ok(())
    }
}

impl Change {
    fn parse(parameters: &[(String, String)]) -> Result<Self, String> {
        let (mut level, mut duration) = (None, None);
        for (name, value) in parameters {
            let parameter = match &**name {
                "level" => &mut level,
                "for" => &mut duration,
                _ => {
                    let name = Echo::from(&**name);
                    return Err(format!("unknown parameter, expected level or for: {name:?}"));
                }
            };
            if parameter.replace(&**value).is_some() {
                return Err(format!("{name}: repeated"));
            }
        }
        let level: &str = level.ok_or_else(|| format!("level: missing, expected {EXPECTED}"))?;
        let directives = (level != DEFAULT).then(|| directives(level)).transpose()?;
        let reset_after = duration.map(reset_after).transpose()?;
        Ok(Self { directives, reset_after })
    }
}

/// Returns the directives of a level, or directives as they are. A level is that of adtrail's own crates: others are not
/// logged below `info`, because some of them log what clients send.
fn directives(text: &str) -> Result<String, String> {
    if let Some(level) = level(text) {
        let (others, h2) = (level.min(LevelFilter::INFO), level.min(LevelFilter::ERROR));
        return Ok(format!("{others},h2={h2},adtrail={level},hbase_client={level}"));
    }
    // The parser panics if other characters than ASCII are at its beginning.
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong(text));
    }
    // A word alone would be a target, and with it each misspelt level.
    let is_directive = |part: &str| part.contains('=') || level(part).is_some();
    match text.split(',').find(|part| !is_directive(part)) {
        Some(part) => Err(wrong(part)),
        None => {
            let parsed = EnvFilter::builder().with_regex(false).parse(text);
            parsed.map(|_| text.to_owned()).map_err(|_| wrong(text))
        }
    }
}

/// Parses the name of a level. Numbers are none.
fn level(text: &str) -> Option<LevelFilter> {
    let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_word.then(|| text.parse().ok()).flatten()
}

fn reset_after(text: &str) -> Result<Duration, String> {
    let wrong = |problem: &str| format!("for: {problem}: {:?}", Echo::from(text));
    match config::parse_duration(text) {
        Ok(Duration::ZERO) => Err(wrong("zero, expected a longer duration")),
        Ok(duration) => Ok(duration),
        Err(problem) => Err(wrong(&problem)),
    }
}

fn wrong(text: &str) -> String {
    format!("level: expected {EXPECTED}: {:?}", Echo::from(text))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;

    #[track_caller]
    fn check_logged(directives: &str, target_of_h2: bool, debug_of_adtrail: bool) {
        let mut file = tempfile::tempfile().unwrap();
        let logs = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(directives))
            .with_writer(file.try_clone().unwrap())
            .finish();
        tracing::subscriber::with_default(logs, || {
            tracing::warn!(target: "h2::proto::streams::recv", "of a client");
            tracing::debug!(target: "reqwest::connect", "of a library");
            tracing::debug!(target: "adtrail_ingest::consumer", "of a crate");
            tracing::info!("of adtrail");
        });
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        let logged = ["of adtrail", "of a library", "of a client", "of a crate"];
        let expected = [true, false, target_of_h2, debug_of_adtrail];
        assert_eq!(logged.map(|part| text.contains(part)), expected, "{directives}: {text}");
    }

    #[test]
    fn a_client_cannot_cause_warnings_of_h2() {
        check_logged(LOGGED, false, false);
        check_logged("info", true, false);
        check_logged(&directives("debug").unwrap(), false, true);
        check_logged(&directives("info").unwrap(), false, false);
    }

    fn parse(parameters: &[(&str, &str)]) -> Result<Change, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Change::parse(&parameters.iter().map(owned).collect::<Vec<_>>())
    }

    #[track_caller]
    fn check(level: &str, expected: &str) {
        let change = Change { directives: Some(expected.into()), reset_after: None };
        assert_eq!(parse(&[("level", level)]), Ok(change));
    }

    #[track_caller]
    fn check_wrong(parameters: &[(&str, &str)], expected: &str) {
        let error = parse(parameters).unwrap_err();
        assert_eq!(error.replace(EXPECTED, "…"), expected);
    }

    #[test]
    fn a_level_is_that_of_adtrail() {
        check("debug", "info,h2=error,adtrail=debug,hbase_client=debug");
        check("WARN", "warn,h2=error,adtrail=warn,hbase_client=warn");
        check("off", "off,h2=off,adtrail=off,hbase_client=off");
        check("info,adtrail_ingest=trace", "info,adtrail_ingest=trace");
        check("adtrail::audit=info", "adtrail::audit=info");
    }

    #[test]
    fn a_level_can_be_for_some_time_or_that_of_the_start() {
        let change = parse(&[("for", "10m"), ("level", DEFAULT)]).unwrap();
        let expected = Change { directives: None, reset_after: Some(Duration::from_secs(600)) };
        assert_eq!(change, expected);
    }

    #[test]
    fn wrong_levels_are_named() {
        check_wrong(&[], "level: missing, expected …");
        check_wrong(&[("level", "")], "level: expected …: \"\"");
        check_wrong(&[("level", "debgu")], "level: expected …: \"debgu\"");
        check_wrong(&[("level", "4")], "level: expected …: \"4\"");
        check_wrong(&[("level", "info,adtrail")], "level: expected …: \"adtrail\"");
        check_wrong(&[("level", "info,")], "level: expected …: \"\"");
        check_wrong(&[("level", "adtrail=loud")], "level: expected …: \"adtrail=loud\"");
        check_wrong(&[("level", "\u{3000}a=info")], "level: expected …: \"\\u{3000}a=info\"");
        check_wrong(&[("level", "info"), ("level", "info")], "level: repeated");
        let unknown = "unknown parameter, expected level or for: \"filter\"";
        check_wrong(&[("filter", "info")], unknown);
        let zero = "for: zero, expected a longer duration: \"0s\"";
        check_wrong(&[("level", "info"), ("for", "0s")], zero);
        let unit = "for: no unit, expected one of ms, s, m, h, d, w as in \"7d\": \"5\"";
        check_wrong(&[("level", "info"), ("for", "5")], unit);
    }
}
