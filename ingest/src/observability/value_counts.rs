//! Counts of received values that identify nobody, and of the touches that they are a share of.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use attribution::facts::event::{Fact, Pid, SpreadId};
use attribution::facts::ignored_values::{self, IgnoredValue};
use attribution::facts::placeholders::IgnoredReason;
use attribution::rules::policy::Policy;
use metrics::counter;

use crate::decode::event::Built;

/// The channel of campaigns that are not in the catalogue.
const UNKNOWN: &str = "unknown";
const LOG_INTERVAL: Duration = Duration::from_secs(60);

config::describe_metrics! {
    /// Clicks and impressions, by channel.
    describe_counter TOUCHES = "adtrail_ingest_touches_total";
    /// Values that are ignored because they identify nobody, by field and reason: placeholders, unexpanded macros, values
    /// of an MD5 field that are not an MD5, addresses that cannot be parsed. Only touches have a channel.
    describe_counter IGNORED_VALUES = "adtrail_ingest_ignored_values_total";
}

pub fn describe_metrics() {
    describe();
}

/// The counts of one batch.
#[derive(Debug, Default)]
pub struct ValueCounts {
    touches: HashMap<(Pid, SpreadId), u64>,
    ignored: HashMap<IgnoredKey, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct IgnoredKey {
    pid: Pid,
    /// The campaign of a touch.
    spreadid: Option<SpreadId>,
    field: &'static str,
    reason: IgnoredReason,
}

impl ValueCounts {
    pub fn add(&mut self, Built { fact, ignored_event_id }: &Built) {
        let pid = fact.pid();
        let spreadid = match fact {
            Fact::Touch(touch) => Some(touch.spreadid),
            Fact::Activation(_) | Fact::Effect(_) => None,
        };
        if let Some(spreadid) = spreadid {
            *self.touches.entry((pid, spreadid)).or_default() += 1;
        }
        let of_fact = ignored_values::of_fact(fact);
        let of_fact = of_fact.iter().map(|IgnoredValue { field, reason, .. }| (*field, *reason));
        for (field, reason) in of_fact.chain(ignored_event_id.map(|reason| ("event_id", reason))) {
            let key = IgnoredKey { pid, spreadid, field, reason };
            *self.ignored.entry(key).or_default() += 1;
        }
    }

    /// Adds the counts to the metrics.
    pub fn count(&self, policy: &Policy) {
        let mut touches: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for ((pid, spreadid), count) in &self.touches {
            let labels = (app(policy, *pid), channel(policy, *pid, Some(*spreadid)));
            *touches.entry(labels).or_default() += count;
        }
        for ((app, channel), count) in touches {
            counter!(TOUCHES, "app" => app.to_owned(), "channel" => channel.to_owned())
                .increment(count);
        }
        for (key, count) in &self.ignored {
            let app = app(policy, key.pid).to_owned();
            let channel = channel(policy, key.pid, key.spreadid).to_owned();
            let (field, reason) = (key.field, key.reason.name());
            counter!(IGNORED_VALUES, "app" => app, "channel" => channel, "field" => field, "reason" => reason)
                .increment(*count);
        }
    }
}

/// Logs ignored values, at most once a minute for an app and field.
#[derive(Debug, Default)]
pub struct ValueLog(HashMap<(Pid, &'static str), Instant>);

impl ValueLog {
    pub fn log(&mut self, counts: &ValueCounts, policy: &Policy, now: Instant) {
        for (key, count) in &counts.ignored {
            let logged_at = self.0.get(&(key.pid, key.field));
            if logged_at.is_some_and(|at| now.duration_since(*at) < LOG_INTERVAL) {
                continue;
            }
            self.0.insert((key.pid, key.field), now);
            let (app, channel) = (app(policy, key.pid), channel(policy, key.pid, key.spreadid));
            let (field, reason) = (key.field, key.reason.name());
            tracing::info!(
                app,
                channel,
                field,
                reason,
                count,
                "values that identify nobody were ignored; see \"Ignored values\" in docs/events.md"
            );
        }
    }
}

fn app(policy: &Policy, pid: Pid) -> &str {
    policy.app(pid).map_or("", |app| &app.key)
}

/// Returns the channel of a campaign; empty if there is no campaign.
fn channel(policy: &Policy, pid: Pid, spreadid: Option<SpreadId>) -> &str {
    let Some(spreadid) = spreadid else { return "" };
    policy.campaign(pid, spreadid).map_or(UNKNOWN, |campaign| &campaign.channel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;
    use crate::fuzz::POLICY;

    #[test]
    fn an_ignored_event_id_is_counted_with_its_app() {
        let json = br#"{"type":"activation","app":"app-x","event_id":"null","time":1773144000005,"ids":{"oaid":"0"}}"#;
        let fact = decode::decode(json, None, &POLICY).expect("the event is valid");
        let pid = fact.pid();
        let reason = IgnoredReason::Placeholder;
        let mut counts = ValueCounts::default();
        counts.add(&Built { fact, ignored_event_id: Some(reason) });
        let key = |field| IgnoredKey { pid, spreadid: None, field, reason };
        assert_eq!(counts.ignored, HashMap::from([(key("event_id"), 1), (key("oaid"), 1)]));
        assert!(counts.touches.is_empty());
    }

    #[test]
    fn an_app_and_field_are_logged_once_a_minute() {
        let counts = |field: &'static str| {
            let reason = IgnoredReason::Macro;
            let key = IgnoredKey { pid: Pid(1), spreadid: None, field, reason };
            ValueCounts { ignored: HashMap::from([(key, 1)]), ..ValueCounts::default() }
        };
        let (mut log, start) = (ValueLog::default(), Instant::now());
        let mut is_logged = |field: &'static str, seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            log.log(&counts(field), &POLICY, now);
            log.0[&(Pid(1), field)] == now
        };
        assert!(is_logged("oaid", 0));
        assert!(!is_logged("oaid", 59));
        assert!(is_logged("imei", 59));
        assert!(is_logged("oaid", 60));
    }
}
