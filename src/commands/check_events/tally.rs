//! Counts the lines of files by app and type.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use attribution::facts::device_ids::DeviceIds;
use attribution::facts::event::{Fact, Pid, TouchKind};
use attribution::facts::identity::identity;
use attribution::facts::match_keys::by_id;
use attribution::rules::policy::Policy;
use ingest::decode::lateness::{self, Received};
use ingest::decode::{DecodeError, ErrorCode};
use serde::Deserialize;
use serde_json::Value;

use super::meeting::Meeting;
use super::problems::{self, Finding, Problem};
use crate::commands::replay::intake::Line;

/// Maximum number of different messages of dead letters that are kept for an app and type.
const MESSAGES_MAX: usize = 100;
/// Does not contain the time of the run, so that two runs have the same output.
const AHEAD: &str = "time is more than 24 hours ahead of this machine's clock";
/// The channel of campaigns that are not in the settings.
const UNKNOWN_CHANNEL: &str = "unknown";

attribution::named! {
    /// The type of an event; unknown for an invalid line without one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum EventKind {
        Click = "click",
        Impression = "impression",
        Activation = "activation",
        Effect = "effect",
        Unknown = "unknown",
    }
}

/// The counts of all lines.
#[derive(Debug)]
pub struct Tally<'p> {
    policy: &'p Policy,
    now_ms: i64,
    /// Keeps the first value of each problem.
    keep_values: bool,
    /// `None` for invalid lines without a known app.
    pub sections: BTreeMap<(Option<Pid>, EventKind), Section>,
    pub apps: BTreeMap<Pid, Meeting<'p>>,
}

/// The events of one type and app.
#[derive(Debug, Default)]
pub struct Section {
    /// Valid events.
    pub events: u64,
    /// Keyed by code and message without positions; the message is empty once there are too many.
    pub dead_letters: BTreeMap<(ErrorCode, String), DeadLetters>,
    /// Events that have the field.
    present: BTreeMap<&'static str, u64>,
    problems: BTreeMap<(&'static str, Problem), Occurrences>,
    /// The hashes of the device ids of the first event with an `event_id`, by the hash of that.
    devices: HashMap<u64, Box<[u64]>>,
}

/// A line, by the index of its file and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    pub file: usize,
    pub line: u64,
}

#[derive(Debug)]
pub struct DeadLetters {
    pub events: u64,
    pub first: Location,
    /// The message of the first one.
    pub message: String,
}

#[derive(Debug)]
struct Occurrences {
    events: u64,
    first: Location,
    value: Option<Box<str>>,
}

/// A field and a problem of its values.
#[derive(Debug)]
pub struct ProblemRow<'t> {
    pub field: &'static str,
    pub problem: Problem,
    pub events: u64,
    /// `None` for missing values.
    pub first: Option<Location>,
    /// The first value, if values are kept.
    pub value: Option<&'t str>,
    pub is_fault: bool,
}

/// What can be read of an invalid event.
#[derive(Default, Deserialize)]
struct Envelope {
    #[serde(default, rename = "type")]
    kind: Value,
    #[serde(default)]
    app: Value,
}

/// The id of a valid event as received.
#[derive(Default, Deserialize)]
struct ReceivedId<'a> {
    #[serde(borrow, default)]
    event_id: Cow<'a, str>,
}

impl<'a> ReceivedId<'a> {
    /// Parses the line of an activation or effect whose id is derived from the content.
    fn of(fact: &Fact, line: &'a [u8]) -> Self {
        let is_derived = !matches!(fact, Fact::Touch(_)) && fact.id().starts_with('#');
        let received = || serde_json::from_slice(line).unwrap_or_default();
        if is_derived { received() } else { Self::default() }
    }

    fn is_present(&self) -> bool {
        !self.event_id.trim().is_empty()
    }
}

impl<'p> Tally<'p> {
    pub fn new(policy: &'p Policy, now_ms: i64, keep_values: bool) -> Self {
        Self { policy, now_ms, keep_values, sections: BTreeMap::new(), apps: BTreeMap::new() }
    }

    pub fn add(&mut self, line: Line<'_>) {
        let at = Location { file: line.file, line: line.number };
        // A file has no broker timestamps: the events count as received now.
        let received = Received::Arrival(self.now_ms);
        let event = line.event.and_then(|fact| {
            let in_time = lateness::check(fact.time(), received, None);
            let ahead = |error| DecodeError { message: AHEAD.to_owned(), ..error };
            in_time.map(|()| fact).map_err(ahead)
        });
        match event {
            Ok(fact) => self.add_fact(&fact, line.text, at),
            Err(error) => self.add_dead_letter(line.text, error, at),
        }
    }

    /// Returns the number of valid events, and of dead letters.
    pub fn totals(&self) -> (u64, u64) {
        let sections = || self.sections.values();
        (sections().map(|section| section.events).sum(), sections().map(Section::dead).sum())
    }

    fn add_fact(&mut self, fact: &Fact, line: &[u8], at: Location) {
        let (pid, policy, keep_values) = (fact.pid(), self.policy, self.keep_values);
        match fact {
            Fact::Touch(touch) => {
                let campaign = policy.campaign(pid, touch.spreadid);
                let channel = campaign.map_or(UNKNOWN_CHANNEL, |campaign| &*campaign.channel);
                self.apps.entry(pid).or_default().add_touch(touch, channel);
            }
            Fact::Activation(activation) => {
                self.apps.entry(pid).or_default().add_activation(activation);
            }
            Fact::Effect(_) => {}
        }
        let received = ReceivedId::of(fact, line);
        let section = self.sections.entry((Some(pid), EventKind::of_fact(fact))).or_default();
        section.events += 1;
        for (field, is_present) in problems::fields(fact) {
            let is_present = is_present || (field == problems::EVENT_ID && received.is_present());
            *section.present.entry(field).or_default() += u64::from(is_present);
        }
        let mut findings = problems::of_fact(fact, policy);
        findings.extend(problems::of_event_id(&received.event_id));
        if section.has_id_of_another_device(fact) {
            let (field, problem) = (problems::EVENT_ID, Problem::NotUnique);
            findings.push(Finding { field, problem, value: fact.id() });
        }
        // An event counts once for a field and problem, however many values it has.
        findings.sort_by_key(|finding| (finding.field, finding.problem));
        findings.dedup_by_key(|finding| (finding.field, finding.problem));
        for Finding { field, problem, value } in findings {
            let kept = || keep_values.then(|| value.into());
            let first = || Occurrences { events: 0, first: at, value: kept() };
            section.problems.entry((field, problem)).or_insert_with(first).events += 1;
        }
    }

    fn add_dead_letter(&mut self, line: &[u8], error: DecodeError, at: Location) {
        let envelope: Envelope = serde_json::from_slice(line).unwrap_or_default();
        let app = envelope.app.as_str().and_then(|key| self.policy.app_by_key(key));
        let kind = envelope.kind.as_str().and_then(EventKind::from_name);
        let key = (app.map(|app| app.pid), kind.unwrap_or(EventKind::Unknown));
        let dead_letters = &mut self.sections.entry(key).or_default().dead_letters;
        let mut key = (error.code, without_positions(&error.message));
        if dead_letters.len() >= MESSAGES_MAX && !dead_letters.contains_key(&key) {
            key.1.clear();
        }
        let first = || DeadLetters { events: 0, first: at, message: error.message };
        dead_letters.entry(key).or_insert_with(first).events += 1;
    }
}

impl Section {
    /// Checks whether an earlier event has the same `event_id` and other device ids.
    fn has_id_of_another_device(&mut self, fact: &Fact) -> bool {
        let ids = match fact {
            Fact::Touch(_) => return false,
            Fact::Activation(activation) => &activation.ids,
            Fact::Effect(effect) => &effect.ids,
        };
        let ids: Box<[u64]> = DeviceIds::of_app_event(ids).iter().map(|id| by_id(id).0).collect();
        let is_derived = fact.id().starts_with('#');
        if is_derived || ids.is_empty() {
            return false;
        }
        let event_id = identity(fact.id_space(), fact.id()).row;
        let first = self.devices.entry(event_id).or_insert_with(|| ids.clone());
        !first.iter().any(|id| ids.contains(id))
    }

    /// Returns the number of dead letters.
    pub fn dead(&self) -> u64 {
        self.dead_letters.values().map(|letters| letters.events).sum()
    }

    /// Returns the problems by field.
    pub fn rows(&self) -> Vec<ProblemRow<'_>> {
        let missing = self.present.iter().map(|(field, present)| ProblemRow {
            field,
            problem: Problem::Missing,
            events: self.events - present,
            first: None,
            value: None,
            is_fault: false,
        });
        let found = self.problems.iter().filter(|((field, problem), found)| {
            // One MD5 in 64 looks like a UUID.
            *problem != Problem::NotHashed || found.events * 10 > self.present_in(field)
        });
        let found = found.map(|((field, problem), found)| ProblemRow {
            field,
            problem: *problem,
            events: found.events,
            first: Some(found.first),
            value: found.value.as_deref(),
            is_fault: problem.is_fault(field),
        });
        let mut rows: Vec<_> = missing.filter(|row| row.events > 0).chain(found).collect();
        rows.sort_by_key(|row| (row.field, row.problem));
        rows
    }

    fn present_in(&self, field: &str) -> u64 {
        self.present.get(field).copied().unwrap_or_default()
    }
}

impl EventKind {
    fn of_fact(fact: &Fact) -> Self {
        match fact {
            Fact::Touch(touch) => match touch.kind {
                TouchKind::Click => Self::Click,
                TouchKind::Impression => Self::Impression,
            },
            Fact::Activation(_) => Self::Activation,
            Fact::Effect(_) => Self::Effect,
        }
    }
}

/// Replaces the numbers of a message, such as `at byte 57`, by which equal problems would differ.
fn without_positions(message: &str) -> String {
    let is_number = |word: &str| {
        let word = word.trim_end_matches([',', ';', ')']);
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
    };
    let words = message.split(' ').map(|word| if is_number(word) { "N" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use attribution::facts::event::SpreadId;
    use attribution::rules::policy::{AppPolicy, Campaign, Windows};
    use ingest::decode::decode;

    use super::*;

    const NOW_MS: i64 = 1_773_144_000_000;

    fn policy() -> Policy {
        let campaign = Campaign {
            spreadid: SpreadId(7),
            pid: Pid(1),
            channel: "toutiao".into(),
            name: "Spring".into(),
            windows: Windows::default(),
        };
        Policy::new(vec![AppPolicy::new(Pid(1), "app-x")], vec![campaign])
    }

    fn click(fields: &str) -> String {
        format!(
            r#"{{"type":"click","app":"app-x","spreadid":7,"click_id":"c","time":{NOW_MS}{fields}}}"#
        )
    }

    fn count<'p>(policy: &'p Policy, lines: &[String]) -> Tally<'p> {
        let mut tally = Tally::new(policy, NOW_MS, false);
        for (line, number) in lines.iter().zip(1..) {
            let text = line.as_bytes();
            tally.add(Line { file: 0, number, text, event: decode(text, None, policy) });
        }
        tally
    }

    #[test]
    fn dead_letters_are_counted_by_type_code_and_message() {
        let policy = policy();
        let day_and_more = NOW_MS + 86_400_001;
        let lines = [
            click(""),
            click("").replace("1773144000000", "1773144000"),
            click("").replace("1773144000000", "   1773144001"),
            click("").replace("1773144000000", &day_and_more.to_string()),
            click("").replace("app-x", "app-q"),
            "[]".to_owned(),
        ];
        let tally = count(&policy, &lines);
        assert_eq!(tally.totals(), (1, 5));
        let found: Vec<_> = tally
            .sections
            .iter()
            .flat_map(|((pid, kind), section)| {
                let letters = section.dead_letters.iter();
                letters.map(move |((code, _), it)| (*pid, *kind, *code, it.events, it.first.line))
            })
            .collect();
        let (click, unknown, app) = (EventKind::Click, EventKind::Unknown, Some(Pid(1)));
        let expected = [
            (None, click, ErrorCode::UnknownApp, 1, 5),
            (None, unknown, ErrorCode::NotAnObject, 1, 6),
            (app, click, ErrorCode::BadTime, 2, 2),
            (app, click, ErrorCode::BadTime, 1, 4),
        ];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        assert!(expected.iter().all(|expected| found.contains(expected)), "{found:?}");
    }

    #[test]
    fn a_problem_counts_once_for_an_event() {
        let policy = policy();
        let lines = [
            click(r#","ids":{"oaid":["0","null","a"]},"ip":"10.0.0.1""#),
            click(r#","ids":{"oaid":"b","imei_md5":"x"},"params":{"a":"{b}"}"#),
            click("").replace(r#""spreadid":7"#, r#""spreadid":8"#),
        ];
        let tally = count(&policy, &lines);
        let section = &tally.sections[&(Some(Pid(1)), EventKind::Click)];
        let rows = section.rows();
        let row = |field: &str, problem: Problem| {
            let row = rows.iter().find(|row| (row.field, row.problem) == (field, problem))?;
            Some((row.events, row.first.map(|first| first.line), row.is_fault))
        };
        assert_eq!(row("oaid", Problem::Placeholder), Some((1, Some(1), false)));
        assert_eq!(row("oaid", Problem::Missing), Some((1, None, false)));
        assert_eq!(row("ip", Problem::SharedAddress), Some((1, Some(1), false)));
        assert_eq!(row("imei_md5", Problem::NotMd5), Some((1, Some(2), true)));
        assert_eq!(row("params", Problem::Macro), Some((1, Some(2), true)));
        assert_eq!(row("spreadid", Problem::UnknownCampaign), Some((1, Some(3), true)));
        assert_eq!(row("click_id", Problem::Missing), None);
    }

    #[test]
    fn few_md5_values_that_look_like_uuids_are_no_problem() {
        let policy = policy();
        let of_gaid = |value: &str| click(&format!(r#","ids":{{"gaid_md5":"{value}"}}"#));
        let has_problem = |md5_values: usize| {
            let md5 = of_gaid("83e9158a4fb54c0e1ef0b238639a23ae");
            let mut lines = vec![md5; md5_values];
            lines.push(of_gaid("599f9c0092dc4b5c94647971f01f8370"));
            let tally = count(&policy, &lines);
            let rows = tally.sections[&(Some(Pid(1)), EventKind::Click)].rows();
            rows.iter().any(|row| row.problem == Problem::NotHashed)
        };
        assert!(has_problem(8));
        assert!(!has_problem(9));
    }

    #[test]
    fn an_event_id_of_several_devices_is_a_fault() {
        let policy = policy();
        let event = |kind: &str, id: &str, fields: &str| {
            format!(
                r#"{{"type":"{kind}","app":"app-x","name":"n","event_id":"{id}","time":{NOW_MS}{fields}}}"#
            )
        };
        let lines = [
            event("activation", "0", r#","ip":"203.0.113.9""#),
            event("activation", "0", r#","ids":{"oaid":"A"}"#),
            event("activation", "0", r#","ids":{"oaid":"b"}"#),
            event("activation", "0", r#","ids":{"gaid":"A"}"#),
            event("activation", "0", r#","ids":{"oaid":"a","imei":"1"}"#),
            event("activation", "1", r#","ids":{"oaid":"b"}"#),
            event("activation", "null", r#","ids":{"oaid":"a"}"#),
            event("activation", "null", r#","ids":{"oaid":"b"}"#),
            event("effect", "0", r#","ids":{"oaid":"b"}"#),
            event("effect", "0", r#","ids":{"oaid":"b"}"#),
        ];
        let tally = count(&policy, &lines);
        let not_unique = |kind| {
            let rows = tally.sections[&(Some(Pid(1)), kind)].rows();
            let row = rows.into_iter().find(|row| row.problem == Problem::NotUnique)?;
            Some((row.field, row.events, row.first.map(|first| first.line), row.is_fault))
        };
        assert_eq!(not_unique(EventKind::Activation), Some(("event_id", 2, Some(3), true)));
        assert_eq!(not_unique(EventKind::Effect), None);
    }

    #[test]
    fn numbers_of_messages_are_replaced() {
        let message = "time at byte 57 is early; allowed: 3, or 4) for app-2";
        let expected = "time at byte N is early; allowed: N or N for app-2";
        assert_eq!(without_positions(message), expected);
    }
}
