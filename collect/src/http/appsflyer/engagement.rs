//! Clicks and impressions in AppsFlyer's parameters.

use serde_json::{Map, Value};

use crate::dialect::pairs::Pairs;
use crate::refusal::Refusal;

/// Parameters that become a field of the event.
const FIELDS: [(&str, &str); 5] = [
    ("af_model", "device_model"),
    ("af_os_version", "os_version"),
    ("af_ip", "ip"),
    ("af_user_agent", "ua"),
    ("af_siteid", "site"),
];
/// Parameters that become one of `params`.
const PARAMS: [(&str, &str); 16] = [
    ("af_campaign", "campaign_name"),
    ("af_adset", "adset_name"),
    ("af_adset_id", "adset_id"),
    ("af_ad", "ad_name"),
    ("af_ad_id", "ad_id"),
    ("af_ad_type", "ad_type"),
    ("af_ad_placement", "placement"),
    ("af_campaign_type", "campaign_type"),
    ("af_channel", "channel"),
    ("af_prt", "partner"),
    ("af_sub_siteid", "sub_site_id"),
    ("af_custom1", "sub1"),
    ("af_custom2", "sub2"),
    ("af_custom3", "sub3"),
    ("af_custom4", "sub4"),
    ("af_custom5", "sub5"),
];
/// The kinds of `af_device_id_type`, and of our device ids.
const DEVICE_IDS: [(&str, &str); 8] = [
    ("advertising_id", "gaid"),
    ("gaid", "gaid"),
    ("google_advertising_id", "gaid"),
    ("idfa", "idfa"),
    ("idfv", "idfv"),
    ("oaid", "oaid"),
    ("imei", "imei"),
    ("android_id", "android_id"),
];

/// The value of `af_campaign_type` for campaigns that bring back people who have had the app, and the purpose of these.
const RETARGETING: &str = "retargeting";

/// A touch without its app.
#[derive(Debug)]
pub(super) struct Touch {
    pub event: Map<String, Value>,
    pub spreadid: u32,
}

/// Reads the parameters. AppsFlyer has none for the time, which is that of the arrival.
pub(super) fn event(
    kind: &'static str,
    platform: &str,
    pairs: &Pairs<'_>,
    arrived_ms: i64,
) -> Result<Touch, Refusal> {
    let campaign = pairs.value("af_campaign_id", false).and_then(|text| text.parse::<u32>().ok());
    let spreadid = campaign.filter(|spreadid| *spreadid > 0).ok_or_else(|| {
        let detail = "af_campaign_id: expected the spreadid of a campaign, 1 to 4294967295";
        Refusal::bad_value("af_campaign_id", detail)
    })?;
    let mut event = members(pairs, &FIELDS);
    let mut params = members(pairs, &PARAMS);
    params.insert("time_source".to_owned(), "arrival".into());
    if let Some(lookback) = pairs.value("af_lookback_window", false) {
        event.insert("lookback_ms".to_owned(), lookback_ms(&lookback)?.into());
    }
    if pairs.value("af_campaign_type", false).is_some_and(|kind| kind == RETARGETING) {
        event.insert("purpose".to_owned(), RETARGETING.into());
    }
    let click_id =
        pairs.value("af_click_id", false).or_else(|| pairs.value("af_request_id", false));
    event.extend(click_id.map(|id| ("click_id".to_owned(), id.into())));
    if let Some((device_kind, value)) = device_id(pairs) {
        event.insert(
            "ids".to_owned(),
            Map::from_iter([(device_kind.to_owned(), value.into())]).into(),
        );
    }
    let os = platform.to_ascii_lowercase();
    if matches!(&*os, "android" | "ios") {
        event.insert("os".to_owned(), os.into());
    }
    event.insert("type".to_owned(), kind.into());
    event.insert("spreadid".to_owned(), spreadid.into());
    event.insert("time".to_owned(), arrived_ms.into());
    event.insert("params".to_owned(), params.into());
    Ok(Touch { event, spreadid })
}

pub(super) fn unknown_campaign() -> Refusal {
    let detail = "af_media_source: expected the id of one of the [[channels]], and af_campaign_id the spreadid of a \
                  campaign of this app and channel";
    Refusal::bad_value("af_media_source", detail)
}

/// Completes the event.
pub(super) fn with_app(touch: Touch, app: &str) -> String {
    let mut event = touch.event;
    event.insert("app".to_owned(), app.into());
    Value::Object(event).to_string()
}

fn members(pairs: &Pairs<'_>, names: &[(&str, &str)]) -> Map<String, Value> {
    let found = names.iter().filter_map(|(parameter, name)| {
        Some(((*name).to_owned(), Value::from(pairs.value(parameter, true)?)))
    });
    found.collect()
}

fn device_id(pairs: &Pairs<'_>) -> Option<(&'static str, String)> {
    let kind = pairs.value("af_device_id_type", false)?.to_ascii_lowercase();
    let (_, kind) = DEVICE_IDS.into_iter().find(|(known, _)| *known == kind)?;
    let value = pairs.value("af_device_id_value", false)?;
    Some((kind, value))
}

/// Parses a window such as `7d` or `24h`.
fn lookback_ms(text: &str) -> Result<u64, Refusal> {
    let window = text.strip_suffix('d').map(|days| (days, 86_400_000));
    let window = window.or_else(|| text.strip_suffix('h').map(|hours| (hours, 3_600_000)));
    let ms = window.and_then(|(count, unit_ms)| count.parse::<u64>().ok()?.checked_mul(unit_ms));
    ms.ok_or_else(|| {
        let detail = "af_lookback_window: expected days or hours, such as 7d or 24h";
        Refusal::bad_value("af_lookback_window", detail)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(platform: &str, query: &str, mut expected: Value) {
        let pairs = Pairs::parse(query, "").unwrap();
        let touch = event("click", platform, &pairs, 1_773_144_000_000).unwrap();
        expected["app"] = "x".into();
        assert_eq!(serde_json::from_str::<Value>(&with_app(touch, "x")).unwrap(), expected);
    }

    #[test]
    fn parameters_of_appsflyer_become_a_touch() {
        check(
            "android",
            "af_media_source=toutiao&af_campaign_id=7&af_campaign=Spring+sale&af_adset_id=3&af_click_id=c-1&\
             af_device_id_type=advertising_id&af_device_id_value=6d92078a-8246-4ba4-ae5b-76104861e7dc&\
             af_ip=203.0.113.9&af_lookback_window=7d&af_siteid=s&af_custom2=b",
            json!({
                "type": "click", "spreadid": 7, "time": 1_773_144_000_000_i64, "click_id": "c-1", "os": "android",
                "ip": "203.0.113.9", "site": "s", "lookback_ms": 604_800_000,
                "ids": {"gaid": "6d92078a-8246-4ba4-ae5b-76104861e7dc"},
                "params": {"campaign_name": "Spring sale", "adset_id": "3", "sub2": "b", "time_source": "arrival"},
            }),
        );
        check(
            "other",
            "af_campaign_id=7&af_request_id=r-1&af_device_id_type=unknown&af_device_id_value=x",
            json!({
                "type": "click", "spreadid": 7, "time": 1_773_144_000_000_i64, "click_id": "r-1",
                "params": {"time_source": "arrival"},
            }),
        );
    }

    #[test]
    fn a_touch_has_the_purpose_of_its_campaign() {
        let purpose = |campaign_type: &str| {
            let query = format!("af_campaign_id=7&af_campaign_type={campaign_type}");
            let pairs = Pairs::parse(&query, "").unwrap();
            let event = event("click", "ios", &pairs, 0).unwrap().event;
            assert_eq!(event["params"]["campaign_type"], *campaign_type);
            event.get("purpose").cloned()
        };
        assert_eq!(purpose("retargeting"), Some("retargeting".into()));
        assert_eq!(purpose("user_acquisition"), None);
    }

    #[test]
    fn unusable_parameters_are_named() {
        let check = |query: &str, field: &str| {
            let pairs = Pairs::parse(query, "").unwrap();
            let refusal = event("click", "ios", &pairs, 0).unwrap_err();
            assert_eq!(refusal.field.as_deref(), Some(field), "{query}");
        };
        check("af_media_source=x", "af_campaign_id");
        check("af_campaign_id=spring", "af_campaign_id");
        check("af_campaign_id=0&af_click_id=c-1", "af_campaign_id");
        check("af_campaign_id=4294967296", "af_campaign_id");
        check("af_campaign_id=7&af_lookback_window=7", "af_lookback_window");
        check("af_campaign_id=7&af_lookback_window=d", "af_lookback_window");
    }
}
