//! What rows and explanations keep of touches that have expired.

use serde_json::{Value, json};
use testbed::kafka::{Kafka, Message};
use testbed::site::{ONE_CAMPAIGN, Site};
use testbed::{check_exit, rows};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// 2025-03-10T12:00:00Z.
const NOON_MS: i64 = 1_741_608_000_000;

/// Produces an event at this time, which is also its broker timestamp.
fn produce(topic: &str, mut event: Value, time: i64) {
    event["app"] = "app-x".into();
    event["time"] = time.into();
    Kafka::shared().produce(topic, [Message::new("app-x", event.to_string()).at(time)]);
}

#[test]
fn callback_tokens_are_exported_after_their_touches_have_expired() {
    let site = Site::new(Kafka::shared(), "downloads.expired", 1, ONE_CAMPAIGN)
        .set("attribution.correction_horizon", "2h");
    let [clicks, activations, effects] = site.topics.all();
    let (device, other) = (json!({"oaid": "device-1"}), json!({"oaid": "device-2"}));
    // As long as tokens of networks can be.
    let token = "t0ken+/=".repeat(512);
    let click = |id: &str, ids: &Value, params: Value| json!({"click_id": id, "spreadid": 7, "ids": ids, "params": params});
    let params = json!({"callback": "t0ken-2", "ad_id": "3"});
    produce(clicks, click("c-1", &device, params), NOON_MS - 2 * HOUR_MS);
    let params = json!({"callback": token, "adset_name": "Spring, \"26\""});
    produce(clicks, click("c-2", &device, params), NOON_MS - HOUR_MS);
    produce(activations, json!({"event_id": "a-1", "ids": device}), NOON_MS);
    let adtrail = site.start();
    adtrail.await_read(3);
    let later = NOON_MS + 8 * DAY_MS;
    produce(clicks, click("c-3", &other, json!({})), later);
    produce(activations, json!({"event_id": "a-2", "ids": other}), later + 1);
    produce(effects, json!({"event_id": "e-1", "name": "purchase", "ids": device}), later);
    adtrail.await_read(6);
    // It is committed after all partitions have been read up to the eighth day.
    produce(clicks, click("c-4", &other, json!({})), later + HOUR_MS);
    adtrail.await_read(7);
    let log = adtrail.stop();

    let explanation = site.run(&["explain", "--app", "app-x", "--activation", "a-1"]);
    let explanation = String::from_utf8_lossy(&explanation.stdout).into_owned();
    let expected = "\nAd\n  adset_name Spring, \"26\"\n  It has a callback token.\n";
    for part in ["Touches before 2025-03-1", expected] {
        assert!(explanation.contains(part), "{part:?} is not in: {explanation}");
    }
    let fields = "event_id,click_id,touch_callback,touch_adset_name,contributor1_params,\
                  contributor1_callback";
    let download = |more: &[&str]| site.download("app-x", "2025-03-10", "2025-03-20", more);
    let rows = rows::by_event_id(rows::parse(&download(&["--fields", fields])));
    let row = |id: &str| fields.split(',').map(|name| rows[id][name].as_str()).collect::<Vec<_>>();
    let name = "Spring, \"26\"";
    assert_eq!(row("a-1"), ["a-1", "c-2", token.as_str(), name, r#"{"ad_id":"3"}"#, "t0ken-2"]);
    // The token of an effect is that of its activation.
    assert_eq!(row("e-1"), ["e-1", "c-2", "", name, "", ""]);
    assert_eq!(row("a-2"), ["a-2", "c-3", "", "", "", ""]);
    let default = String::from_utf8(download(&[])).expect("the CSV is UTF-8");
    for text in [&log, &explanation, &default] {
        assert!(!text.contains("t0ken"), "{text}");
    }
    check_exit(&site.run(&["verify"]), 0, &[]);
}
