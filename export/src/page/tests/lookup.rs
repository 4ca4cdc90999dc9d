//! Look-ups of devices and activations.

use std::sync::Arc;

use attribution::facts::event::Fact;
use attribution::rules::policy::{AppPolicy, DAY_MS, Policy};

use super::{SAME_ORIGIN, by, closed, has, hidden, look_up, page, post};
use crate::tests::fixture::{self, Bed, DAY, activation, click};

#[test]
fn a_device_lookup_has_no_device_id_in_its_url() {
    let facts = (0..120).map(|n| click(7, &format!("c-{n}"), "mine", DAY + n)).collect();
    let bed = Bed::new(facts);
    let form = "app=app-x&kind=oaid&value=mine&timezone=Asia/Shanghai";
    let redirect = post(&bed, "/devices", form, &[SAME_ORIGIN]);
    let at = redirect.header("location").unwrap();
    assert!(redirect.status == 303 && redirect.text().is_empty() && !at.contains("mine"), "{at}");
    assert!(at.starts_with("/devices?app=app-x&timezone=Asia%2FShanghai&lookup="), "{at}");
    // The page can be reloaded.
    let [first, again] = [page(&bed, at), page(&bed, at)];
    assert_eq!(first.text(), again.text());
    has(&first, &["c-119", "c-20<", "2026-03-10T08:00:00.119+08:00", "Older events"]);
    let after = hidden(&first, "after");
    let second = look_up(&bed, &format!("{form}&after={after}"), &[]);
    has(&second, &["c-19<", "c-0<"]);
    assert!(!second.text().contains("Older events") && !second.text().contains("c-20<"));
    for (form, field) in [
        ("app=app-x&kind=x&value=mine", "kind-wrong"),
        ("app=app-x&kind=oaid&value=", "value-wrong"),
        ("app=app-x&kind=oaid&value=mine&timezone=Mars", "timezone-wrong"),
        ("app=app-z&kind=oaid&value=mine", "app-wrong"),
    ] {
        let answer = look_up(&bed, form, &[]);
        assert!(matches!(answer.status, 400 | 404));
        has(&answer, &[field]);
    }
    assert_eq!(post(&bed, "/devices", form, &[]).status, 400);
    let none = page(&bed, "/devices?app=app-x&lookup=0123456789abcdef");
    assert_eq!(none.status, 404);
    has(&none, &["This lookup has expired", "name=\"value\""]);
}

#[test]
fn a_token_sees_only_its_own_lookups() {
    let bed = closed();
    let cookie = bed.cookie("x");
    let form = "app=app-x&kind=oaid&value=device-1";
    let redirect = post(&bed, "/devices", form, &[&cookie, SAME_ORIGIN]);
    let at = redirect.header("location").unwrap();
    has(&by(&bed, at, "x"), &["a-1"]);
    has(&by(&bed, at, "z"), &["This lookup has expired"]);
}

#[test]
fn an_activation_decided_with_other_settings_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = fixture::settings(dir.path());
    let install = Fact::Activation(activation("a-1", "mine", DAY + 2 * DAY_MS));
    let reader = fixture::fill(&config, vec![click(7, "c-1", "mine", DAY), install]);
    let mut apps: Vec<AppPolicy> = config.policy.apps().cloned().collect();
    apps.iter_mut().for_each(|app| app.windows.click_ms = DAY_MS);
    config.policy = Arc::new(Policy::new(apps, vec![]));
    let answer = page(&Bed::over(dir, config, reader), "/activations?app=app-x&event_id=a-1");
    has(&answer, &["decided with other settings", "would be: <b>install, organic</b>"]);
}
