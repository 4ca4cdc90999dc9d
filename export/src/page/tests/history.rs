//! The history of exports.

use attribution::facts::event::Fact;

use super::{by, closed, has, link, links, page};
use crate::tests::fixture::{Bed, DAY, EVENTS, MINUTE, effect, many_activations};

#[test]
fn the_history_shows_the_outcome_of_each_export() {
    let bed = Bed::new(many_activations(3));
    let address = "/v1/apps/app-x/events.csv?from=2026-03-10&to=2026-03-10&timezone=Asia/Shanghai\
                   &status=organic&fields=event_id&dialect=excel&export_id=f000000000000001";
    let file = bed.get(address);
    assert_eq!((file.status, file.header("adtrail-export-id")), (200, Some("f000000000000001")));
    let history = page(&bed, "/exports");
    let export = bed.get("/v1/exports/f000000000000001").json();
    has(&history, &["Complete, 3 rows", export["sha256"].as_str().unwrap(), "Status: organic"]);
    has(&history, &["app-x_2026-03-10_2026-03-10_Asia-Shanghai.csv", "1 column"]);
    let without_id = address.replace("&export_id=f000000000000001", "");
    assert_eq!(links(&history, "/v1/"), [&*without_id]);
    let form = page(&bed, &links(&history, "/?app=")[0]);
    assert_eq!(link(&form), without_id.replace("Asia/", "Asia%2F"));
    // An id belongs to one export.
    for id in ["f000000000000001", "f", "F000000000000002", "0000000000000001", ""] {
        let answer = bed.get(&format!("{EVENTS}&export_id={id}"));
        assert_eq!(
            (answer.status, &answer.json()["parameter"]),
            (400, &"export_id".into()),
            "{id}"
        );
    }
}

/// The history repeats any request with the same file, and links the form only if it can express the request.
#[test]
fn an_export_can_be_repeated_exactly() {
    let mut facts = many_activations(3);
    for (id, name) in [("e-1", "buy"), ("e-2", " buy"), ("e-3", "a,\"b ")] {
        facts.push(Fact::Effect(effect(id, name, "device-1", DAY + 9 * MINUTE)));
    }
    let bed = Bed::new(facts);
    let first = bed.get(&format!("{EVENTS}&limit=2"));
    let second = first.next_page().unwrap();
    let pull = "/api/raw-data/export/app/app-x/installs_report/v5?from=2026-03-10&to=2026-03-10";
    let organic = pull.replace("installs_report", "organic_installs_report");
    let check = |address: &str, has_form: bool, texts: &[&str]| {
        let file = bed.get(address);
        assert_eq!(file.status, 200, "{address}");
        let history = page(&bed, "/exports");
        assert_eq!(links(&history, &address[..5])[0], *address);
        assert_eq!(bed.get(&links(&history, &address[..5])[0]).body, file.body, "{address}");
        let first = history.text().split("<li class=\"card\"").nth(1).unwrap();
        texts.iter().for_each(|text| assert!(first.contains(text), "{text:?} is not in {first}"));
        assert_eq!(first.contains("&#x2f;?app="), has_form, "{address}: {first}");
        if has_form {
            let form = page(&bed, &links(&history, "/?app=")[0]);
            assert_eq!(bed.get(&link(&form)).body, file.body, "{address}");
        }
        file.text().lines().count() - 1
    };
    assert_eq!(check(&format!("{EVENTS}&event_name=%20buy"), true, &["&quot; buy&quot;"]), 1);
    assert_eq!(check(&format!("{EVENTS}&event_name=%22a,%22%22b%20%22,buy"), true, &[]), 2);
    assert_eq!(check(&format!("{EVENTS}&fields=event_id,channel"), true, &["2 columns"]), 6);
    assert_eq!(
        check(&format!("{EVENTS}&fields=channel,event_id"), false, &["channel,event_id"]),
        6
    );
    assert_eq!(check(&format!("{EVENTS}&timezone=+08:00"), true, &[" · +08:00<"]), 6);
    assert_eq!(check(&format!("{EVENTS}&limit=2"), false, &["limit: 2", "cannot express"]), 2);
    assert_eq!(check(second, false, &["after: "]), 2);
    let additional = format!("{EVENTS}&preset=appsflyer&additional_fields=store_reinstall");
    assert_eq!(check(&additional, false, &["additional_fields: store_reinstall"]), 6);
    assert_eq!(check(&format!("{EVENTS}&preset=appsflyer"), true, &[]), 6);
    let narrowed = format!("{organic}&media_source=organic&maximum_rows=1&additional_fields=x_y");
    let texts = ["organic_installs_report", "media_source: organic", "maximum_rows: 1", "x_y"];
    assert_eq!(check(&narrowed, false, &texts), 1);
    assert_eq!(check(&organic, false, &["organic_installs_report"]), 3);
}

#[test]
fn a_long_request_is_listed_without_links() {
    let bed = Bed::new(many_activations(1));
    let address = format!("{EVENTS}&event_name={}", "x".repeat(4_000));
    assert_eq!(bed.get(&address).status, 200);
    let history = page(&bed, "/exports");
    has(&history, &["Complete, 0 rows", "The address is too long to be kept."]);
    assert_eq!(links(&history, "/v1/"), [] as [&str; 0]);
}

#[test]
fn a_token_sees_only_its_own_history() {
    let bed = closed();
    by(&bed, EVENTS, "x");
    has(&by(&bed, "/exports", "x"), &["Complete, 3 rows"]);
    for other in ["y", "z"] {
        has(&by(&bed, "/exports", other), &["No export yet"]);
    }
}
