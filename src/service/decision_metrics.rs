//! Metrics of decisions. The number of series is bounded by the settings: apps, channels and their kinds of match.

use std::collections::BTreeMap;

use attribution::facts::event::{Pid, SpreadId};
use attribution::rules::policy::Policy;
use attribution::worker::RowOutcome;
use metrics::counter;

/// The channel of campaigns that are not in the catalogue.
const UNKNOWN: &str = "unknown";

config::describe_metrics! {
    /// Rows written, new and corrected ones, by app, event type, status and channel of the credited campaign, which is
    /// empty if there is none.
    describe_counter DECISIONS = "adtrail_attribution_decisions_total";
    /// Rows written with a credited touch, by its channel and the key by which it matched.
    describe_counter MATCHES = "adtrail_attribution_matches_total";
}

pub fn describe_metrics() {
    describe();
}

/// Counts the rows of a batch. `policy` has the names of apps and channels.
pub fn count(rows: &BTreeMap<RowOutcome, u64>, policy: &Policy) {
    for (row, count) in rows {
        let app = policy.app(row.pid).map_or("", |app| &app.key);
        let channel = channel(policy, row.pid, row.spreadid);
        let (event_type, status) = (row.event_type.name(), row.status.name());
        counter!(DECISIONS, "app" => app.to_owned(), "channel" => channel.to_owned(), "event_type" => event_type, "status" => status)
            .increment(*count);
        if let Some(match_type) = row.match_type {
            counter!(MATCHES, "channel" => channel.to_owned(), "match_type" => match_type)
                .increment(*count);
        }
    }
}

fn channel(policy: &Policy, pid: Pid, spreadid: SpreadId) -> &str {
    match spreadid {
        SpreadId(0) => "",
        _ => policy.campaign(pid, spreadid).map_or(UNKNOWN, |campaign| &campaign.channel),
    }
}

#[cfg(test)]
mod tests {
    use attribution::rules::row::{EventType, Status};
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    const SETTINGS: &str = "[[apps]]\npid = 1\nkey = \"app-x\"\n[[channels]]\nid = \"toutiao\"\n\
                            [[campaigns]]\nspreadid = 7\npid = 1\nchannel = \"toutiao\"\n";

    fn outcome(spreadid: u32, status: Status, match_type: Option<&'static str>) -> RowOutcome {
        let (pid, event_type) = (Pid(1), EventType::Activation);
        RowOutcome { pid, spreadid: SpreadId(spreadid), event_type, status, match_type }
    }

    #[test]
    fn rows_are_counted_by_channel_and_match() {
        let rows = BTreeMap::from([
            (outcome(7, Status::Attributed, Some("oaid")), 3),
            (outcome(7, Status::Attributed, Some("click_id")), 2),
            (outcome(8, Status::Attributed, Some("oaid")), 1),
            (outcome(0, Status::Organic, None), 5),
        ]);
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let policy = config::parse(SETTINGS).unwrap().policy;
        metrics::with_local_recorder(&recorder, || count(&rows, &policy));
        let scrape = handle.render();
        let check = |line: &str| {
            assert!(scrape.lines().any(|found| found == line), "{line} is not in\n{scrape}");
        };
        let decisions = |channel: &str, status: &str, count: u64| {
            check(&format!(
                "{DECISIONS}{{app=\"app-x\",channel=\"{channel}\",event_type=\"activation\",status=\"{status}\"}} {count}"
            ));
        };
        decisions("toutiao", "attributed", 5);
        decisions("unknown", "attributed", 1);
        decisions("", "organic", 5);
        check(&format!("{MATCHES}{{channel=\"toutiao\",match_type=\"oaid\"}} 3"));
        check(&format!("{MATCHES}{{channel=\"toutiao\",match_type=\"click_id\"}} 2"));
        check(&format!("{MATCHES}{{channel=\"unknown\",match_type=\"oaid\"}} 1"));
    }
}
