//! The counts as text and as JSON.

use std::fmt::{Display, Write};
use std::path::PathBuf;

use attribution::facts::event::Pid;
use attribution::facts::printable::printable;
use attribution::rules::policy::Policy;
use serde_json::{Value, json};

use super::meeting::{KindCounts, Met, SideCounts};
use super::tally::{DeadLetters, EventKind, Location, ProblemRow, Section, Tally};
use crate::counted::counted;

pub struct Report<'t> {
    tally: &'t Tally<'t>,
    policy: &'t Policy,
    paths: &'t [PathBuf],
    apps: Vec<(Pid, Met<'t>)>,
}

impl<'t> Report<'t> {
    pub fn new(tally: &'t Tally<'t>, policy: &'t Policy, paths: &'t [PathBuf]) -> Self {
        let apps = tally.apps.iter().map(|(pid, meeting)| (*pid, meeting.finish()));
        Self { tally, policy, paths, apps: apps.collect() }
    }

    /// Returns the number of faults: what loses events or matches.
    pub fn faults(&self) -> usize {
        let of_section = |section: &Section| {
            section.dead_letters.len() + section.rows().iter().filter(|row| row.is_fault).count()
        };
        let kinds = self.apps.iter().flat_map(|(_, met)| &met.kinds);
        self.tally.sections.values().map(of_section).sum::<usize>()
            + kinds.filter(|kind| kind.is_fault).count()
    }

    /// Renders tables. An exclamation mark is before each fault.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let (events, dead) = self.tally.totals();
        let files = counted(self.paths.len(), "file");
        line(&mut out, format_args!("{files}: {events} valid events, {dead} dead letters"));
        for ((pid, kind), section) in &self.tally.sections {
            self.write_section(&mut out, *pid, *kind, section);
        }
        for (pid, met) in &self.apps {
            line(
                &mut out,
                format_args!("\n{}: ids by which events can match", self.app(Some(*pid))),
            );
            write_kinds(&mut out, &met.kinds);
            write_sides(&mut out, met);
        }
        out
    }

    fn write_section(
        &self,
        out: &mut String,
        pid: Option<Pid>,
        kind: EventKind,
        section: &Section,
    ) {
        let (app, kind, events) = (self.app(pid), kind.name(), section.events);
        let dead = section.dead();
        line(out, format_args!("\n{app} {kind}: {events} valid events, {dead} dead letters"));
        for ((code, _), letters) in &section.dead_letters {
            let DeadLetters { events, first, message } = letters;
            let share = share(*events, section.events + dead);
            let (code, at, message) = (code.name(), self.location(*first), printable(message));
            line(
                out,
                format_args!("! {code:<18} {:<16} {events:>10} {share:>6}  {at}: {message}", ""),
            );
        }
        for row in section.rows() {
            let (mark, share) = (mark(row.is_fault), share(row.events, section.events));
            let ProblemRow { field, problem, events, first, value, .. } = row;
            let at = first.map(|first| self.location(first)).unwrap_or_default();
            let value = value.map(|value| format!(": {}", printable(value))).unwrap_or_default();
            let problem = problem.name();
            let shown =
                format!("{mark} {field:<18} {problem:<16} {events:>10} {share:>6}  {at}{value}");
            line(out, shown.trim_end());
        }
    }

    pub fn json(&self) -> Value {
        let (events, dead_letters) = self.tally.totals();
        let sections = self.tally.sections.iter();
        let sections =
            sections.map(|((pid, kind), section)| self.json_of_section(*pid, *kind, section));
        let apps = self.apps.iter().map(|(pid, met)| json_of_app(self.app_key(Some(*pid)), met));
        json!({
            "events": events,
            "dead_letters": dead_letters,
            "faults": self.faults(),
            "types": sections.collect::<Vec<_>>(),
            "apps": apps.collect::<Vec<_>>(),
        })
    }

    fn json_of_section(&self, pid: Option<Pid>, kind: EventKind, section: &Section) -> Value {
        let dead_letters = section.dead_letters.iter().map(|((code, _), letters)| {
            json!({
                "code": code.name(),
                "events": letters.events,
                "first": self.json_of_location(letters.first),
                "message": letters.message,
            })
        });
        let problems = section.rows().into_iter().map(|row| {
            json!({
                "field": row.field,
                "problem": row.problem.name(),
                "events": row.events,
                "first": row.first.map(|first| self.json_of_location(first)),
                "value": row.value,
                "fault": row.is_fault,
            })
        });
        json!({
            "app": self.app_key(pid),
            "type": kind.name(),
            "events": section.events,
            "dead_letters": dead_letters.collect::<Vec<_>>(),
            "problems": problems.collect::<Vec<_>>(),
        })
    }

    /// Returns the key of an app; `None` for lines without a known app.
    fn app_key(&self, pid: Option<Pid>) -> Option<&'t str> {
        pid.and_then(|pid| self.policy.app(pid)).map(|app| &*app.key)
    }

    fn app(&self, pid: Option<Pid>) -> &'t str {
        self.app_key(pid).unwrap_or("(unknown app)")
    }

    fn location(&self, at: Location) -> String {
        format!("{}:{}", printable(&self.paths[at.file].to_string_lossy()), at.line)
    }

    fn json_of_location(&self, at: Location) -> Value {
        json!({"file": self.paths[at.file].to_string_lossy(), "line": at.line})
    }
}

fn write_kinds(out: &mut String, kinds: &[KindCounts]) {
    let [touches, activations] = ["touches", "activations"];
    line(out, format_args!("  {:<12} {touches:>21} {activations:>21} {activations:>11}", ""));
    let (kind, raw, md5, matched) = ("kind", "raw", "md5", "that match");
    line(out, format_args!("  {kind:<12} {raw:>10} {md5:>10} {raw:>10} {md5:>10} {matched:>11}"));
    for KindCounts { name, touches, activations, matched, is_fault } in kinds {
        let mark = mark(*is_fault);
        let [touch_raw, touch_md5] = touches;
        let [raw, md5] = activations;
        let note = if *is_fault { "  no common form" } else { "" };
        let counts = format!("{touch_raw:>10} {touch_md5:>10} {raw:>10} {md5:>10} {matched:>11}");
        line(out, format_args!("{mark} {name:<12} {counts}{note}"));
    }
}

/// Writes how many activations and touches cannot match, or match nothing.
fn write_sides(out: &mut String, met: &Met<'_>) {
    let (of, events, without_id, unmatched) = ("of", "events", "without id", "unmatched");
    line(out, format_args!("  {of:<26} {events:>10} {without_id:>17} {unmatched:>17}"));
    let mut write = |name: &str, counts: &SideCounts| {
        let SideCounts { events, without_id, unmatched } = *counts;
        let [without, unmatched] =
            [without_id, unmatched].map(|count| format!("{count:>10} {:>6}", share(count, events)));
        line(out, format_args!("  {name:<26} {events:>10} {without} {unmatched}"));
    };
    write("activations", &met.activations);
    for (channel, counts) in &met.channels {
        write(&format!("touches of {channel}"), counts);
    }
}

fn json_of_app(app: Option<&str>, met: &Met<'_>) -> Value {
    let forms = |[raw, md5]: [u64; 2]| json!({"raw": raw, "md5": md5});
    let kinds = met.kinds.iter().map(|kind| {
        json!({
            "kind": kind.name,
            "touches": forms(kind.touches),
            "activations": forms(kind.activations),
            "matched_activations": kind.matched,
            "fault": kind.is_fault,
        })
    });
    let channels = met.channels.iter().map(|(channel, counts)| {
        let mut shown = json_of_side(counts);
        shown["channel"] = json!(channel);
        shown
    });
    json!({
        "app": app,
        "ids": kinds.collect::<Vec<_>>(),
        "activations": json_of_side(&met.activations),
        "touches": channels.collect::<Vec<_>>(),
    })
}

fn json_of_side(counts: &SideCounts) -> Value {
    let SideCounts { events, without_id, unmatched } = *counts;
    json!({"events": events, "without_id": without_id, "unmatched": unmatched})
}

fn mark(is_fault: bool) -> char {
    if is_fault { '!' } else { ' ' }
}

/// Formats a share in percent, rounded down, so that only all of them are 100 %.
fn share(count: u64, of: u64) -> String {
    let per_mille = (u128::from(count) * 1_000).checked_div(u128::from(of)).unwrap_or_default();
    format!("{}.{}%", per_mille / 10, per_mille % 10)
}

fn line(out: &mut String, text: impl Display) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_are_rounded_down() {
        let shares = [share(0, 0), share(1, 3), share(999_999, 1_000_000), share(5, 5)];
        assert_eq!(shares, ["0.0%", "33.3%", "99.9%", "100.0%"]);
    }
}
