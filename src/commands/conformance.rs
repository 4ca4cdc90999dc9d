//! `adtrail conformance`: runs the cases of the attribution contract on an engine.

use std::fmt::Write;
use std::time::Duration;

use anyhow::bail;

use super::{UsageError, print};
use crate::cli::Conformance;
use crate::conformance::{Command, Engine, Suite, run_all};
use crate::counted::counted;

pub fn run(options: &Conformance) -> anyhow::Result<()> {
    let suite = match &options.dir {
        Some(folder) => Suite::from_folder(folder),
        None => Suite::embedded(),
    };
    let suite = suite.map_err(|problems| UsageError(format!("invalid cases:\n{problems}")))?;
    let cases =
        suite.select(&options.case).map_err(|problem| UsageError(format!("--case: {problem}")))?;
    let engine = match &options.engine {
        None => Engine::Builtin,
        Some(line) if line.trim().is_empty() => {
            return Err(UsageError("--engine: expected a command".into()).into());
        }
        Some(line) => Engine::Command(Command {
            line: line.clone(),
            timeout: Duration::from_secs(options.timeout),
        }),
    };
    let outcomes = run_all(&cases, &engine);
    let (mut shown, mut failed) = (String::new(), 0);
    for outcome in &outcomes {
        if let Some(failure) = &outcome.failure {
            failed += 1;
            let _ = writeln!(shown, "FAIL {}: {failure}", outcome.name);
        }
    }
    let passed = outcomes.len() - failed;
    let cases = counted(outcomes.len(), "case");
    let _ = writeln!(shown, "{cases} in 4 orders each: {passed} passed, {failed} failed");
    print(shown.as_bytes())?;
    if failed > 0 {
        bail!("{failed} of {cases} failed");
    }
    Ok(())
}
