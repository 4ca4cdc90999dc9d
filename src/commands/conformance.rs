//! `adtrail conformance`: runs the cases of the attribution contract on an engine.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, bail};

use super::{WrongUse, counted};
use crate::cli::Conformance;
use crate::conformance::{Command, Engine, Suite, run_all};

pub fn run(options: &Conformance) -> anyhow::Result<()> {
    let suite = match &options.dir {
        Some(folder) => Suite::of_folder(folder),
        None => Suite::embedded(),
    };
    let suite = suite.map_err(|problems| WrongUse(format!("invalid cases:\n{problems}")))?;
    let cases =
        suite.select(&options.case).map_err(|problem| WrongUse(format!("--case: {problem}")))?;
    let engine = match &options.engine {
        None => Engine::Builtin,
        Some(line) if line.trim().is_empty() => {
            return Err(WrongUse("--engine: expected a command".into()).into());
        }
        Some(line) => Engine::Command(Command {
            line: line.clone(),
            timeout: Duration::from_secs(options.timeout),
        }),
    };
    let outcomes = run_all(&cases, &engine);
    let mut out = io::stdout().lock();
    let mut failed = 0;
    for outcome in &outcomes {
        if let Some(failure) = &outcome.failure {
            failed += 1;
            writeln!(out, "FAIL {}: {failure}", outcome.name)
                .context("standard output cannot be written")?;
        }
    }
    let passed = outcomes.len() - failed;
    let cases = counted(outcomes.len(), "case");
    writeln!(out, "{cases} in 4 orders each: {passed} passed, {failed} failed")
        .context("standard output cannot be written")?;
    if failed > 0 {
        bail!("{failed} of {cases} failed");
    }
    Ok(())
}
