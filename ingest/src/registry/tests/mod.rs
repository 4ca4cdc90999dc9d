//! The client against a registry that answers by script, over HTTP. `tests/integrations/registry.rs` of the
//! root has a real one.

mod answers;
mod load;
mod outages;
mod references;
mod server;
mod tls;

use std::time::Duration;

use super::*;
use server::Server;

/// Far longer than anything takes on a slow machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// The registry of tests: schemas are kept as text, and one is any JSON but a number.
type Texts = Registry<String>;

fn compile(text: &str) -> Result<String, String> {
    match serde_json::from_str(text) {
        Ok(serde_json::Value::Number(_)) | Err(_) => Err("this is no schema".into()),
        Ok(_) => Ok(text.to_owned()),
    }
}

/// Settings with a folder for schemas, which goes with the bed.
struct Bed {
    folder: tempfile::TempDir,
    urls: Vec<String>,
}

impl Bed {
    fn of(servers: &[&Server]) -> Self {
        Self::at(&servers.iter().map(|server| server.url()).collect::<Vec<_>>())
    }

    fn at(urls: &[String]) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), urls: urls.to_vec() }
    }

    /// With more lines for `[registry]`.
    fn settings(&self, lines: &str) -> config::Registry {
        let text = format!(
            "[registry]\nurls = {:?}\ncache = {:?}\n{lines}",
            self.urls,
            self.folder.path().join("cache")
        );
        config::parse(&text).unwrap().registry.unwrap()
    }

    /// With short retry intervals. How long the last result of a registry stands for its state is not
    /// shortened: a slow machine would exceed it.
    fn start(&self, lines: &str) -> Texts {
        let quick = Timing::default() / 20;
        let timing = Timing {
            schema_retry_delay_min: quick.schema_retry_delay_min,
            schema_retry_delay_max: quick.schema_retry_delay_max,
            registry_probe_interval: quick.registry_probe_interval,
            ..Timing::default()
        };
        self.start_with(lines, timing)
    }

    fn start_with(&self, lines: &str, timing: Timing) -> Texts {
        Texts::start(&self.settings(lines), compile, timing).unwrap()
    }
}

fn id(id: u32) -> SchemaKey {
    SchemaKey::Id(id)
}

#[track_caller]
fn check_ready(registry: &Texts, key: SchemaKey, expected: &str) {
    match registry.wait(key, DEADLINE) {
        Lookup::Ready(text) => assert_eq!(*text, expected),
        other => panic!("{key}: {other:?}"),
    }
}

#[track_caller]
fn check_unusable(registry: &Texts, key: SchemaKey, kind: UnusableKind, reason: &str) {
    match registry.wait(key, DEADLINE) {
        Lookup::Unusable(why) => {
            assert_eq!(why.kind, kind, "{}", why.reason);
            assert!(why.reason.contains(reason), "{}", why.reason);
        }
        other => panic!("{key}: {other:?}"),
    }
}

#[track_caller]
fn check_waiting(registry: &Texts, key: SchemaKey) {
    let found = registry.look_up(key);
    assert!(matches!(found, Lookup::Waiting), "{found:?}");
}

/// Until the condition holds.
#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
