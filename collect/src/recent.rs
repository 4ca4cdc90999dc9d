//! The last requests of each link, for those who set it up. No value of a request is kept: only which parameters had
//! one, which had the macro itself, and what the request became.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use config::Config;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

use crate::dialect::link::{LinkKind, LinkTarget};
use crate::dialect::{Dialect, Presence};
use crate::refusal::{EventOutcome, Refusal};
use crate::signature::Outcome;

/// Requests that are kept of a link.
const KEPT_MAX: usize = 20;

/// The last requests of a link, newest first.
type Latest = VecDeque<RecentRequest>;

/// App, channel and kind of reports without a campaign of the settings.
type OtherKey = (Box<str>, Box<str>, LinkKind);

/// The last requests. Their number is limited by that of campaigns, links, apps and channels of the settings.
pub(crate) struct RecentRequests {
    /// Reports with a campaign of the settings.
    reports: HashMap<(u32, LinkKind), Arc<Mutex<Latest>>>,
    /// Clicks of people, keyed by the id of the link.
    people: HashMap<Box<str>, Arc<Mutex<Latest>>>,
    /// Reports without a campaign of the settings.
    others: Arc<Mutex<HashMap<OtherKey, Latest>>>,
}

/// A link of which requests are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LinkKey<'a> {
    Report { spreadid: u32, kind: LinkKind },
    OtherReport { app: &'a str, channel: &'a str, kind: LinkKind },
    Person(&'a str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecentRequest {
    pub time: Timestamp,
    /// The campaign that a report names.
    pub spreadid: Option<u32>,
    /// One for each parameter of the dialect, in the same order.
    pub presence: Box<[Presence]>,
    pub signature: Option<Outcome>,
    /// What else than a person has probably made the request.
    pub bot: Option<&'static str>,
    pub outcome: EventOutcome,
}

/// What is shown of a request.
#[derive(Serialize)]
struct Shown<'a> {
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    spreadid: Option<u32>,
    outcome: &'static str,
    #[serde(flatten)]
    refusal: Option<&'a Refusal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bot: Option<&'static str>,
    not_replaced: Vec<&'a str>,
    missing: Vec<&'a str>,
}

impl RecentRequests {
    pub fn new(config: &Config) -> Self {
        let kinds = [LinkKind::Click, LinkKind::Impression];
        let campaigns = config.policy.campaigns().map(|campaign| campaign.spreadid.0);
        let reports = campaigns
            .flat_map(|spreadid| kinds.map(|kind| ((spreadid, kind), Arc::default())))
            .collect();
        let people = config.links.iter().map(|link| (link.id.clone(), Arc::default()));
        Self { reports, people: people.collect(), others: Arc::default() }
    }

    /// Keeps the requests of `before` too, for the links that are still in the settings.
    pub fn share(&mut self, before: &Self) {
        share(&mut self.reports, &before.reports);
        share(&mut self.people, &before.people);
        self.others = Arc::clone(&before.others);
    }

    /// Keeps a request in place of the oldest one of its link.
    pub fn keep(&self, link: LinkKey<'_>, request: RecentRequest) {
        let latest = match link {
            LinkKey::Report { spreadid, kind } => self.reports.get(&(spreadid, kind)),
            LinkKey::Person(id) => self.people.get(id),
            LinkKey::OtherReport { app, channel, kind } => {
                let mut others = self.others.lock();
                push(others.entry((app.into(), channel.into(), kind)).or_default(), request);
                return;
            }
        };
        if let Some(latest) = latest {
            push(&mut latest.lock(), request);
        }
    }

    /// Returns the last reports of a link as JSON, and those of its app and channel without a campaign of the settings.
    pub fn of_report(&self, target: LinkTarget<'_>, dialect: &Dialect) -> Value {
        let LinkTarget { app, channel, spreadid, kind } = target;
        let requests = self.reports.get(&(spreadid, kind)).map(|latest| latest.lock().clone());
        let key: OtherKey = (app.into(), channel.into(), kind);
        let others = self.others.lock().get(&key).cloned();
        let shown = |latest: Option<Latest>| shown(latest.unwrap_or_default(), Some(dialect));
        json!({"requests": shown(requests), "others": shown(others)})
    }

    /// Returns the last clicks of people on a link as JSON.
    pub fn of_person(&self, id: &str) -> Value {
        let requests = self.people.get(id).map(|latest| latest.lock().clone());
        json!({"requests": shown(requests.unwrap_or_default(), None), "others": []})
    }
}

/// Takes the values of the keys that `before` has, too.
fn share<K: Eq + Hash, V>(latest: &mut HashMap<K, Arc<V>>, before: &HashMap<K, Arc<V>>) {
    for (key, value) in latest {
        if let Some(shared) = before.get(key) {
            *value = Arc::clone(shared);
        }
    }
}

fn push(latest: &mut Latest, request: RecentRequest) {
    latest.truncate(KEPT_MAX - 1);
    latest.push_front(request);
}

fn shown(latest: Latest, dialect: Option<&Dialect>) -> Value {
    let shown = latest.iter().map(|request| {
        let names = |wanted| {
            let dialect = dialect.into_iter();
            dialect.flat_map(|dialect| dialect.names_with(&request.presence, wanted)).collect()
        };
        let shown = Shown {
            time: format!("{:.3}", request.time),
            spreadid: request.spreadid,
            outcome: request.outcome.name(),
            refusal: request.outcome.refusal(),
            signature: request.signature.map(Outcome::name),
            bot: request.bot,
            not_replaced: names(Presence::Placeholder),
            missing: names(Presence::Missing),
        };
        // Texts and numbers can always be written.
        serde_json::to_value(shown).unwrap_or_default()
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::catalogue::Dialects;
    use crate::dialect::pairs::Pairs;
    use crate::dialect::read::Report;

    const SETTINGS: &str = "[[apps]]\npid = 1\nkey = \"app-x\"\n[[channels]]\nid = \"weibo\"\n\
                            [[campaigns]]\nspreadid = 7\npid = 1\nchannel = \"weibo\"\n\
                            [[links]]\nid = \"poster\"\nspreadid = 7\nfallback = \"https://a.example/\"\n";

    const TARGET: LinkTarget<'static> =
        LinkTarget { app: "app-x", channel: "weibo", spreadid: 7, kind: LinkKind::Click };

    fn request(second: i64) -> RecentRequest {
        RecentRequest {
            time: Timestamp::from_second(second).unwrap(),
            spreadid: Some(7),
            presence: Box::default(),
            signature: None,
            bot: None,
            outcome: EventOutcome::Produced,
        }
    }

    fn times(requests: &Value) -> Vec<&str> {
        requests.as_array().unwrap().iter().map(|one| one["time"].as_str().unwrap()).collect()
    }

    #[test]
    fn the_last_requests_of_each_link_are_kept() {
        let recent = RecentRequests::new(&config::parse(SETTINGS).unwrap());
        let dialects = Dialects::load(None).unwrap();
        let weibo = dialects.get("weibo").unwrap();
        let click = LinkKey::Report { spreadid: 7, kind: LinkKind::Click };
        (0..22).for_each(|second| recent.keep(click, request(second)));
        recent.keep(LinkKey::Person("poster"), request(50));
        recent.keep(LinkKey::Person("nothing"), request(51));
        let other = |app| LinkKey::OtherReport { app, channel: "weibo", kind: LinkKind::Click };
        recent.keep(other("app-x"), request(52));
        recent.keep(other("app-y"), request(53));
        let found = recent.of_report(TARGET, weibo);
        let shown = times(&found["requests"]);
        assert_eq!(shown.len(), KEPT_MAX);
        assert_eq!([shown[0], shown[19]], ["1970-01-01T00:00:21.000Z", "1970-01-01T00:00:02.000Z"]);
        assert_eq!(times(&found["others"]), ["1970-01-01T00:00:52.000Z"]);
        let impressions = LinkTarget { kind: LinkKind::Impression, ..TARGET };
        let none = json!({"requests": [], "others": []});
        assert_eq!(recent.of_report(impressions, weibo), none);
        assert_eq!(times(&recent.of_person("poster")["requests"]), ["1970-01-01T00:00:50.000Z"]);
        assert_eq!(recent.of_person("nothing"), none);
    }

    #[test]
    fn no_value_of_a_request_is_shown() {
        let recent = RecentRequests::new(&config::parse(SETTINGS).unwrap());
        let dialects = Dialects::load(None).unwrap();
        let weibo = dialects.get("weibo").unwrap();
        let query =
            "imp=secret&oaid={oaid}&idfa_md5=secret&imei_md5=secret&oaid_md5=secret&ip=secret";
        let pairs = Pairs::parse(query, "").unwrap();
        let report = Report { kind: LinkKind::Click, app: "app-x", pairs: &pairs, arrived_ms: 0 };
        let reading = weibo.read(report);
        let refusal = Refusal::from(&reading.touch.unwrap_err());
        let wrong = RecentRequest {
            spreadid: None,
            presence: reading.presence,
            signature: Some(Outcome::Missing),
            bot: Some("crawler"),
            outcome: EventOutcome::Refused(Box::new(refusal)),
            ..request(1)
        };
        let app = "app-x";
        recent.keep(LinkKey::OtherReport { app, channel: "weibo", kind: LinkKind::Click }, wrong);
        let expected = json!({
            "time": "1970-01-01T00:00:01.000Z", "outcome": "refused", "code": "bad_parameter", "field": "spreadid",
            "detail": "spreadid: expected the number of the campaign, 1 to 4294967295, in the link",
            "signature": "missing", "bot": "crawler",
            "not_replaced": ["oaid"],
            "missing": [
                "ua", "clicktime", "androidid_md5", "mac_md5", "caid", "devicetype", "customer_id",
                "campaign_id", "campaign_name", "ad_id", "ad_name", "creative_id", "creative_name",
            ],
        });
        assert_eq!(recent.of_report(TARGET, weibo)["others"], json!([expected]));
    }
}
