//! The client against a scripted registry, over HTTP. `tests/integrations/registry.rs` of the root package uses a real
//! one.

mod answers;
mod load;
mod outages;
mod references;
mod server;
mod tls;

use std::time::Duration;

use super::*;
use crate::tests::{TIMEOUT, wait_until};
use server::Server;

/// The registry under test: schemas are texts, and any JSON but a number is valid.
type Texts = Registry<String>;

fn compile(text: &str) -> Result<String, String> {
    match serde_json::from_str(text) {
        Ok(serde_json::Value::Number(_)) | Err(_) => Err("not a schema".into()),
        Ok(_) => Ok(text.to_owned()),
    }
}

/// Settings and a temporary folder for cached schemas.
struct Fixture {
    folder: tempfile::TempDir,
    urls: Vec<String>,
}

impl Fixture {
    fn for_servers(servers: &[&Server]) -> Self {
        Self::for_urls(&servers.iter().map(|server| server.url()).collect::<Vec<_>>())
    }

    fn for_urls(urls: &[String]) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), urls: urls.to_vec() }
    }

    /// Returns the settings, with further lines for `[registry]`.
    fn settings(&self, lines: &str) -> config::Registry {
        let text = format!(
            "[registry]\nurls = {:?}\ncache = {:?}\n{lines}",
            self.urls,
            self.folder.path().join("cache")
        );
        config::parse(&text).unwrap().registry.unwrap()
    }

    /// Starts a registry client with short retry intervals. `registry_result_validity` keeps its default, because a
    /// slow machine would exceed a shorter one.
    fn start(&self, lines: &str) -> Texts {
        let quick = Timing::default() / 20;
        let timing = Timing {
            initial_schema_retry_delay: quick.initial_schema_retry_delay,
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
    match registry.wait(key, TIMEOUT) {
        SchemaLookup::Ready(text) => assert_eq!(*text, expected),
        other => panic!("{key}: {other:?}"),
    }
}

#[track_caller]
fn check_unusable(registry: &Texts, key: SchemaKey, kind: UnusableKind, reason: &str) {
    match registry.wait(key, TIMEOUT) {
        SchemaLookup::Unusable(unusable) => {
            assert_eq!(unusable.kind, kind, "{}", unusable.reason);
            assert!(unusable.reason.contains(reason), "{}", unusable.reason);
            // It goes into a dead letter, which must not be too long for its topic.
            assert!(unusable.reason.len() < 1_000, "{}", unusable.reason);
        }
        other => panic!("{key}: {other:?}"),
    }
}

#[track_caller]
fn check_waiting(registry: &Texts, key: SchemaKey) {
    let found = registry.look_up(key);
    assert!(matches!(found, SchemaLookup::Waiting), "{found:?}");
}
