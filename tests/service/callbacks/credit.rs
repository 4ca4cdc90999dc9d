//! Credit that moves, and what is not sent at all.

use testbed::kafka::Kafka;
use testbed::site::Site;

use super::*;

const TAKEN: &str = "{\"code\":0}";

fn site(name: &str, endpoints: &str) -> Site {
    Site::new(Kafka::shared(), name, 2, &settings(endpoints)).impatient()
}

#[test]
fn credit_that_moves_before_it_was_sent_is_reported_to_the_other_network_only() {
    let network = Network::start();
    let site = site(
        "callbacks.before",
        &format!("{}{}", ocean(&network, "a", ""), ocean(&network, "b", "")),
    );
    // The first network refuses the callback, so that it is never sent.
    network.answer("/a", 400, "");
    network.answer("/b", 200, TAKEN);
    let adtrail = site.start();
    produce(&site, &click(1, "c-1", 1, 30 * MINUTE_MS));
    produce(&site, &activation("a-1", 1, 10 * MINUTE_MS));
    await_state(&adtrail, "a", "dead", 1);
    produce(&site, &click(2, "c-2", 1, 20 * MINUTE_MS));
    let requests = network.await_requests("/b", 1);
    let [request] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(request.json()["context"]["ad"]["callback"], "token-c-2");
    await_state(&adtrail, "b", "sent", 1);
    // It would be taken now, but the credit has moved.
    network.answer("/a", 200, TAKEN);
    let output = site.run(&["callbacks", "retry", "--endpoint", "a"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "{\"retried\":1}\n", "{output:?}");
    await_state(&adtrail, "a", "dropped", 1);
    assert_eq!(network.received("/a").len(), 1);
    check_conserved(&adtrail);
}

/// Sends a callback to `a`, moves the credit to `b`, and returns the service.
fn move_after_sending(site: &Site, network: &Network) -> Adtrail {
    network.answer("/a", 200, TAKEN);
    network.answer("/b", 200, TAKEN);
    network.answer("/hook", 200, "");
    let adtrail = site.start();
    produce(site, &click(1, "c-1", 1, 30 * MINUTE_MS));
    produce(site, &activation("a-1", 1, 10 * MINUTE_MS));
    await_state(&adtrail, "a", "sent", 1);
    await_state(&adtrail, "hook", "sent", 1);
    produce(site, &click(2, "c-2", 1, 20 * MINUTE_MS));
    adtrail
}

#[test]
fn credit_that_moves_after_it_was_sent_is_withheld_from_other_networks() {
    let network = Network::start();
    let endpoints = [ocean(&network, "a", ""), ocean(&network, "b", ""), webhook(&network, "")];
    let site = site("callbacks.withheld", &endpoints.concat());
    let adtrail = move_after_sending(&site, &network);
    await_state(&adtrail, "b", "withheld", 1);
    assert_eq!(network.received("/b").len(), 0);
    // The webhook learns of the change.
    let hooks = network.await_requests("/hook", 2);
    let changed =
        hooks.iter().map(|hook| hook.json()).find(|hook| hook["type"] == "activation.changed");
    let changed = changed.unwrap_or_else(|| panic!("{hooks:?}"));
    assert_eq!(
        (&changed["data"]["channel"], &changed["data"]["spreadid"]),
        (&"b".into(), &2.into())
    );
    assert_eq!(changed["data"]["previous"]["channel"], "a");
    assert_eq!(changed["data"]["previous"]["click_id"], "c-1");
    check_conserved(&adtrail);
}

#[test]
fn late_credit_is_sent_if_the_endpoint_wants_it() {
    let network = Network::start();
    let late = ocean(&network, "b", "late_credit = \"send\"\n");
    let endpoints = [ocean(&network, "a", ""), late, webhook(&network, "")];
    let site = site("callbacks.late", &endpoints.concat());
    let adtrail = move_after_sending(&site, &network);
    let requests = network.await_requests("/b", 1);
    let [request] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(request.json()["context"]["ad"]["callback"], "token-c-2");
    await_state(&adtrail, "b", "sent", 1);
    assert_eq!(network.received("/a").len(), 1, "nothing is retracted");
}

#[test]
fn a_reinstall_is_reported_to_endpoints_with_a_name_for_it() {
    let network = Network::start();
    let again = ocean(&network, "a", "events.reinstall = \"in_app_uv\"\n");
    let again = again.replace("name = \"a\"", "name = \"again\"").replace("/a\"", "/again\"");
    let site = site("callbacks.reinstall", &[ocean(&network, "a", ""), again].concat());
    network.answer("/a", 200, TAKEN);
    network.answer("/again", 200, TAKEN);
    let adtrail = site.start();
    produce(&site, &click(1, "c-1", 1, 30 * MINUTE_MS));
    produce(&site, &activation("a-1", 1, 25 * MINUTE_MS));
    produce(&site, &activation("organic", 2, 25 * MINUTE_MS));
    await_state(&adtrail, "a", "sent", 1);
    await_state(&adtrail, "again", "sent", 1);
    adtrail.await_read(3);
    let mut retargeting = click(1, "c-2", 1, 20 * MINUTE_MS);
    retargeting["purpose"] = "retargeting".into();
    produce(&site, &retargeting);
    produce(&site, &activation("a-2", 1, 15 * MINUTE_MS));
    // A click on an ad for new users gets no credit of a reinstall.
    produce(&site, &click(1, "c-3", 2, 20 * MINUTE_MS));
    produce(&site, &activation("unattributed", 2, 15 * MINUTE_MS));
    await_state(&adtrail, "again", "sent", 2);
    await_state(&adtrail, "a", "dropped", 1);
    adtrail.await_read(7);
    let types = |path: &str| {
        let requests = network.received(path);
        let types = requests.iter().map(|request| request.json()["event_type"].to_string());
        let mut types: Vec<String> = types.collect();
        types.sort_unstable();
        types
    };
    assert_eq!(types("/a"), ["\"active\""]);
    assert_eq!(types("/again"), ["\"active\"", "\"in_app_uv\""]);
    let made = testbed::adtrail::sum(&adtrail.metrics(), "adtrail_callbacks_made", "");
    assert_eq!(made, Some(4.0));
    check_conserved(&adtrail);
}

#[test]
fn nothing_is_sent_about_duplicates_other_channels_and_what_is_too_old() {
    let network = Network::start();
    let site = site("callbacks.none", &ocean(&network, "a", ""));
    network.answer("/a", 200, TAKEN);
    let adtrail = site.start();
    let day_ms = 1_440 * MINUTE_MS;
    // Its channel has no endpoint.
    produce(&site, &click(2, "c-1", 1, 30 * MINUTE_MS));
    produce(&site, &activation("other", 1, 20 * MINUTE_MS));
    // Without an ad.
    produce(&site, &activation("organic", 2, 20 * MINUTE_MS));
    // Older than a day.
    produce(&site, &click(1, "c-3", 3, 2 * day_ms));
    produce(&site, &activation("old", 3, 2 * day_ms - MINUTE_MS));
    await_state(&adtrail, "a", "too_old", 1);
    // A duplicate of one that is sent: less than a minute later.
    produce(&site, &click(1, "c-4", 4, 30 * MINUTE_MS));
    let first = activation("first", 4, 20 * MINUTE_MS);
    let mut again = first.clone();
    again["event_id"] = "again".into();
    again["time"] = (first["time"].as_u64().expect("a time") + MINUTE_MS / 2).into();
    produce(&site, &first);
    produce(&site, &again);
    produce(&site, &purchase("e-1", 4, 10 * MINUTE_MS));
    let requests = network.await_requests("/a", 2);
    await_state(&adtrail, "a", "sent", 2);
    assert_eq!(requests.len(), 2, "{requests:?}");
    adtrail.await_read(9);
    assert_eq!(adtrail.metric("adtrail_callbacks_made"), Some(3.0));
    check_conserved(&adtrail);
}
