//! The totals of a comparison as a few lines of text for standard error.

use std::fmt::Write;

use attribution::rules::policy::Policy;
use export::{Totals, TotalsLine};
use indicatif::HumanCount;

use crate::counted::counted;

/// Maximum number of campaigns shown. The file of `--totals` lists all.
const LINES_MAX: usize = 20;

/// Lists the campaigns whose totals change, by decreasing change, and the number of rows that differ.
pub fn render(totals: &Totals, old: &Policy, new: &Policy) -> String {
    let mut changed: Vec<&TotalsLine> =
        totals.lines().filter(|line| line.old != line.new).collect();
    // The sort is stable: equal changes keep the order of the totals.
    changed.sort_by_key(|line| std::cmp::Reverse(change(line)));
    let mut lines = Vec::new();
    for line in changed.iter().take(LINES_MAX) {
        lines.push([
            format!("{} → {}", line.old.activations, line.new.activations),
            format!("{} → {}", line.old.effects, line.new.effects),
            name(line, old, new),
        ]);
    }
    let mut out = String::new();
    if !lines.is_empty() {
        lines.insert(0, ["activations", "effects", "credited to"].map(str::to_owned));
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let (activations, effects) = (width(0).unwrap_or(0), width(1).unwrap_or(0));
    for [activation, effect, name] in &lines {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{activation:>activations$}  {effect:>effects$}  {name}");
    }
    if changed.len() > LINES_MAX {
        let _ = writeln!(out, "… and {} more", counted(changed.len() - LINES_MAX, "campaign"));
    }
    let (differing, events) = (HumanCount(totals.differing), HumanCount(totals.events));
    let _ = writeln!(out, "{differing} of {events} rows are decided differently");
    out
}

fn change(line: &TotalsLine) -> u64 {
    let (old, new) = (line.old, line.new);
    old.activations.abs_diff(new.activations) + old.effects.abs_diff(new.effects)
}

fn name(line: &TotalsLine, old: &Policy, new: &Policy) -> String {
    if line.spreadid.0 == 0 {
        return format!("{}: no campaign", line.app);
    }
    let (campaign, channel) = line.names(old, new);
    [&format!("{}: {}", line.app, line.spreadid.0), campaign, channel]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}
