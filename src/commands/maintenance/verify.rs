//! `adtrail verify`: checks the store for damage, and repairs derived data.

use std::fmt::Write as _;

use anyhow::bail;
use serde_json::{Value, json};
use store::maintenance::verify::{
    Check, Options, Problem, Progress, Remedy, Report, repair, verify,
};

use crate::cli::Verify;
use crate::commands::{load, print, require_apps, require_embedded};
use crate::telemetry;

/// Maximum number of examples listed for each kind of problem.
const EXAMPLES_MAX: usize = 10;
const BAR: &str = "{msg} {wide_bar} {human_pos} of about {human_len}, {eta} left";

pub fn run(options: &Verify) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    require_embedded(&config, "HBase verifies checksums whenever it reads")?;
    require_apps(&config, &options.settings)?;
    let check_options = Options {
        examples_max: if options.all { usize::MAX } else { EXAMPLES_MAX },
        have_settings_changed: options.settings_changed,
    };
    let bar = telemetry::bar(None, BAR);
    let mut on_progress = |Progress { check, done, total }: Progress| {
        telemetry::set_progress(&bar, done, total);
        bar.set_message(check.name());
    };
    let run = if options.repair { repair } else { verify };
    let report = run(&config.store, &config.policy, &check_options, &mut on_progress)?;
    drop(bar);
    let shown = if options.json { format!("{:#}\n", json(&report)) } else { text(&report) };
    print(shown.as_bytes())?;
    require_undamaged(&report, options)
}

/// Returns an error if the store is damaged, or still damaged after a repair.
fn require_undamaged(report: &Report, options: &Verify) -> anyhow::Result<()> {
    let is_damaged = match options.repair {
        true => !report.is_repaired(),
        false => !report.is_whole(),
    };
    if !is_damaged {
        return Ok(());
    }
    let is_lost = |problem: &&Problem| problem.remedy() == Remedy::Restore;
    bail!(match (report.found.keys().find(is_lost).is_some(), options.repair) {
        (true, _) => "the store is damaged; some of it cannot be derived: restore a backup",
        (false, true) => "the store is damaged, and not all of it could be repaired",
        (false, false) if report.found.is_empty() => "not all of the store could be checked",
        (false, false) => "the store is damaged: stop the service and run adtrail verify --repair",
    })
}

/// Renders a line for each check, then the problems.
fn text(report: &Report) -> String {
    let mut out = String::new();
    let [check, checked, wrong] = ["check", "checked", "wrong"];
    let _ = writeln!(out, "{check:<10} {checked:>12} {wrong:>8}");
    for check in Check::ALL {
        let (checked, wrong) = (report.checked(check), report.wrong(check));
        let _ = write!(out, "{:<10} {checked:>12} {wrong:>8}", check.name());
        let _ = match report.repaired(check) {
            0 => writeln!(out),
            repaired => writeln!(out, "  {repaired} repaired"),
        };
    }
    for (count, note) in notes(report) {
        if count > 0 {
            let _ = writeln!(out, "{count} {note}");
        }
    }
    for (problem, times) in &report.found {
        let _ =
            writeln!(out, "\n{}: {}, {}", problem.text(), times.found, advice(*problem, report));
        let examples = report.examples.iter().filter(|example| example.problem == *problem);
        let mut shown = 0;
        for example in examples {
            shown += 1;
            let mark = if example.is_repaired { ", repaired" } else { "" };
            let _ = writeln!(out, "  {}{mark}", example.at);
        }
        if shown < times.found {
            let _ = writeln!(out, "  and {} more; --all lists them", times.found - shown);
        }
    }
    out
}

/// Returns counts that are worth reporting but are not damage.
fn notes(report: &Report) -> [(u64, &'static str); 6] {
    [
        (report.final_decisions, "decisions are final; they were compared with their rows only"),
        (
            report.unfinished_effects,
            "events belong to an unfinished batch, which decides them; they were compared with their rows only",
        ),
        (report.differing, "events would be decided differently by the current settings"),
        (report.stale, "index entries belong to replaced facts and are ignored"),
        (
            report.without_probabilistic,
            "facts have no probabilistic index entry: they arrived while probabilistic was off",
        ),
        (report.unchecked, "could not be checked because of other damage"),
    ]
}

fn advice(problem: Problem, report: &Report) -> &'static str {
    match (problem, problem.remedy()) {
        (_, Remedy::Repair) if report.is_file_damaged() => {
            "nothing is repaired while a file is damaged: restore a backup"
        }
        (Problem::DecisionDiffers, _) => {
            "its row is as it was decided: restore a backup, or add --settings-changed if attribution \
             settings have changed"
        }
        (Problem::DecisionLost, _) => {
            "unless attribution settings have changed (--settings-changed); --repair recomputes it"
        }
        (Problem::LogDamaged, _) => {
            "--repair truncates it there; the rest is read again from Kafka"
        }
        (Problem::PositionUnreadable, _) => {
            "--repair removes it; the partition is read again from its beginning"
        }
        (Problem::ConsumedUntilWrong, _) => {
            "unless this machine's clock is wrong; --repair takes the time of the newest row"
        }
        (_, Remedy::Repair) => "--repair derives it",
        (_, Remedy::Restore) => "it cannot be derived: restore a backup",
    }
}

fn json(report: &Report) -> Value {
    let checks = Check::ALL.map(|check| {
        json!({
            "check": check.name(),
            "looked_at": report.checked(check),
            "wrong": report.wrong(check),
            "repaired": report.repaired(check),
        })
    });
    let problems = report.found.iter().map(|(problem, times)| {
        let examples = report.examples.iter().filter(|example| example.problem == *problem);
        let examples =
            examples.map(|example| json!({"at": example.at, "repaired": example.is_repaired}));
        json!({
            "problem": problem.name(),
            "text": problem.text(),
            "check": problem.check().name(),
            "found": times.found,
            "repaired": times.repaired,
            "can_be_derived": problem.remedy() == Remedy::Repair && !report.is_file_damaged(),
            "examples": examples.collect::<Vec<_>>(),
        })
    });
    json!({
        "whole": report.is_whole(),
        "repaired": report.is_repaired(),
        "checks": checks,
        "problems": problems.collect::<Vec<_>>(),
        "final_decisions": report.final_decisions,
        "unfinished_effects": report.unfinished_effects,
        "decided_otherwise": report.differing,
        "stale_index_entries": report.stale,
        "not_found_by_place": report.without_probabilistic,
        "unchecked": report.unchecked,
    })
}
