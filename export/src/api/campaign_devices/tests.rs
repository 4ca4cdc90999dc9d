//! Campaign devices over HTTP, compared with the facts from which they were made.

use std::collections::BTreeMap;

use attribution::facts::event::Fact;
use serde_json::Value;

use crate::tests::fixture::{Bed, DAY, MINUTE, activation, click, effect};

const RANGE: &str = "from=2026-03-10&to=2026-03-10";
const ACTIVATIONS: u64 = 90;

/// Three activations every three minutes, at the same millisecond, each with an effect: one is credited to campaign 7,
/// one to campaign 9, one to none.
fn bed() -> Bed {
    let mut facts = Vec::new();
    for number in 0..ACTIVATIONS {
        let (id, device) = (format!("a-{number}"), format!("d-{number}"));
        let time = DAY + number / 3 * 3 * MINUTE;
        if number % 3 != 2 {
            let campaign = if number % 3 == 0 { 7 } else { 9 };
            facts.push(click(campaign, &format!("c-{number}"), &device, time - MINUTE));
        }
        facts.push(Fact::Activation(activation(&id, &device, time)));
        facts.push(Fact::Effect(effect(&format!("e-{number}"), "purchase", &device, time + 1)));
    }
    // Moves the first activation of campaign 9 to campaign 7.
    facts.push(click(7, "late", "d-1", DAY - 1));
    Bed::new(facts)
}

fn numbers(answer: &Value) -> Vec<u64> {
    let activations = answer["activations"].as_array().expect("activations");
    let number = |one: &Value| one["event_id"].as_str().unwrap()[2..].parse().unwrap();
    activations.iter().map(number).collect()
}

/// Reads all pages of `limit` activations.
fn pages(bed: &Bed, campaign: u32, range: &str, limit: usize) -> Vec<u64> {
    let target = format!("/v1/apps/app-x/campaigns/{campaign}/devices?{range}&limit={limit}");
    let pages: Vec<_> = bed.pages(&target).iter().map(|page| numbers(&page.json())).collect();
    assert!(pages.iter().rev().skip(1).all(|page| page.len() == limit), "{target}");
    pages.concat()
}

#[test]
fn pages_list_the_newest_activations_first() {
    let bed = bed();
    let model = |campaign: u64, minutes: std::ops::Range<u64>| -> Vec<(u64, u64)> {
        let of = |number: u64| match number {
            1 => 7,
            _ => [7, 9, 0][(number % 3) as usize],
        };
        let minute = |number: u64| number / 3 * 3;
        let wanted = (0..ACTIVATIONS)
            .filter(|number| of(*number) == campaign && minutes.contains(&minute(*number)));
        wanted.map(|number| (minute(number), number)).collect()
    };
    let check = |campaign: u32, range: &str, minutes: std::ops::Range<u64>| {
        let mut expected = model(campaign.into(), minutes);
        expected.sort_unstable();
        let whole = pages(&bed, campaign, range, 1_000);
        let mut found: Vec<(u64, u64)> =
            whole.iter().map(|number| (number / 3 * 3, *number)).collect();
        assert!(found.windows(2).all(|pair| pair[0].0 >= pair[1].0), "newest first");
        found.sort_unstable();
        assert_eq!(found, expected, "{campaign} {range}");
        for limit in [1, 7, 31] {
            assert_eq!(pages(&bed, campaign, range, limit), whole, "{limit}");
        }
    };
    check(7, RANGE, 0..1_000);
    check(9, RANGE, 0..1_000);
    check(8, RANGE, 0..0);
    check(7, "from=2026-03-10T00:15&to=2026-03-10T00:45", 15..45);
    check(7, "from=2026-03-10T00:15&to=2026-03-10T00:45:00.001", 15..46);
    check(9, "from=2026-03-10T08:15&to=2026-03-10&timezone=Asia/Shanghai", 15..1_000);
    check(9, "from=2026-03-11&to=2026-03-11", 0..0);
}

/// 150 activations with ids of 20 KiB, about 50 of which reach 1 MiB.
#[test]
fn a_page_of_large_activations_ends_early() {
    const LARGE: u64 = 150;
    let mut facts = Vec::new();
    for number in 0..LARGE {
        let device = format!("d-{number}");
        facts.push(click(7, &format!("c-{number}"), &device, DAY + number));
        let id = format!("{}{number}", "a".repeat(20 << 10));
        facts.push(Fact::Activation(activation(&id, &device, DAY + MINUTE + number)));
    }
    let bed = Bed::new(facts);
    let target = format!("/v1/apps/app-x/campaigns/7/devices?{RANGE}&limit=1000");
    let pages = bed.pages(&target);
    let sizes: Vec<_> =
        pages.iter().map(|page| page.json()["activations"].as_array().unwrap().len()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), LARGE as usize);
    assert!(sizes.len() == 3 && sizes.iter().all(|size| (40..60).contains(size)), "{sizes:?}");
    assert!(pages.iter().all(|page| page.body.len() < 1100 << 10));
    let newest = pages[0].json();
    let newest = newest["activations"][0]["event_id"].as_str().unwrap().to_owned();
    assert!(newest.ends_with("a149"), "the newest first");
}

#[test]
fn an_activation_has_the_values_of_its_row() {
    let bed = bed();
    let target = "/v1/apps/app-x/campaigns/7/devices?from=2026-03-10&to=2026-03-10T00:01";
    let answer = bed.get(&format!("{target}&timezone=UTC"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("adtrail-range-to"), Some("2026-03-10T00:01:00.000Z"));
    assert_eq!(answer.header("link"), None);
    let document = answer.json();
    assert_eq!(
        (&document["campaign"], &document["channel"]),
        (&"Say \"hi\"".into(), &"tou,tiao".into())
    );
    let by_id: BTreeMap<&str, &Value> = document["activations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["event_id"].as_str().unwrap(), one))
        .collect();
    assert_eq!(by_id.keys().copied().collect::<Vec<_>>(), ["a-0", "a-1"]);
    let expected = serde_json::json!({
        "event_id": "a-1", "event_time": "2026-03-10T00:00:00.000Z", "install_type": "install",
        "ids": {"oaid": "d-1"}, "match_type": "oaid", "touch_type": "click",
        "touch_time": "2026-03-09T23:59:59.999Z", "click_id": "late",
    });
    assert_eq!(by_id["a-1"], &expected);
    let unknown =
        bed.get("/v1/apps/app-x/campaigns/9/devices?from=2026-03-10&to=2026-03-10").json();
    assert_eq!((&unknown["campaign"], &unknown["channel"]), (&Value::Null, &"unknown".into()));
    // Another app has none of them.
    let other = format!("/v1/apps/app%20y/campaigns/7/devices?{RANGE}");
    assert_eq!(numbers(&bed.get(&other).json()), [] as [u64; 0]);
}

#[test]
fn invalid_requests_are_problems() {
    let bed = bed();
    let check = |path: &str, status: u16, parameter: Option<&str>| {
        let answer = bed.get(&format!("/v1/apps/{path}"));
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.json()["parameter"].as_str(), parameter, "{path}");
    };
    for spreadid in ["x", "-1", "%2B7", "4294967296"] {
        check(&format!("app-x/campaigns/{spreadid}/devices?{RANGE}"), 404, None);
    }
    check("app-x/campaigns/7/devices?from=2026-03-10", 400, Some("to"));
    let page = bed.get(&format!("/v1/apps/app-x/campaigns/7/devices?{RANGE}&limit=2"));
    let after = page.cursor();
    check(&format!("app-x/campaigns/9/devices?{RANGE}&after={after}"), 400, Some("after"));
    check(&format!("app-x/campaigns/7/devices?{RANGE}&after=x"), 400, Some("after"));
}
