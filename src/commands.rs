//! The commands, a module each, and what they share.

pub mod check_config;
pub mod download;
pub mod replay;
pub mod run;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use config::{Config, Sources};

use crate::cli::Settings;

/// Settings or options that can not be: the command ends with 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongUse(pub String);

/// The settings of file, environment and flags.
fn load(settings: &Settings) -> Result<Config, WrongUse> {
    let sources = Sources {
        file: settings.config.as_deref(),
        environment: std::env::vars_os()
            .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        flags: settings.set.clone(),
    };
    config::load(&sources).map_err(|errors| WrongUse(errors.to_string()))
}

/// That there is something to do.
fn require_apps(config: &Config) -> Result<(), WrongUse> {
    match config.policy.apps().next() {
        Some(_) => Ok(()),
        None => Err(WrongUse("no app is configured: add [[apps]] with pid and key".into())),
    }
}

/// Where a command's data goes: a file, or standard output.
fn output(path: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    Ok(match path {
        Some(path) => {
            let file = File::create(path)
                .with_context(|| format!("can not be written: {}", path.display()))?;
            Box::new(BufWriter::new(file))
        }
        None => Box::new(io::stdout().lock()),
    })
}
