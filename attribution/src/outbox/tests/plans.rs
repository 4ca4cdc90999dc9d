//! Which callbacks a decision has.

use std::sync::Arc;

use super::*;
use crate::facts::event::{Activation, Device, Effect, TouchKind};
use crate::outbox::interest::{Interest, Interests};
use crate::rules::build_row;
use crate::rules::inherit::Inheritance;
use crate::rules::policy::{Campaign, Origin, Policy, Windows};
use crate::rules::row::{CreditedTouch, InstallType, MatchType, RejectReason, Row, TouchDetails};
use crate::rules::winner::{Credit, Decision};

const KINDS: [CallbackKind; 6] = CallbackKind::ALL;

fn policy() -> Arc<Policy> {
    let windows = Windows {
        click_ms: 1,
        click_probabilistic_ms: 1,
        impression_ms: 1,
        impression_probabilistic_ms: 1,
        origins: [Origin::Default; 4],
    };
    let campaign = |spreadid, channel: &str| Campaign {
        spreadid: SpreadId(spreadid),
        pid: Pid(1),
        channel: channel.into(),
        name: "".into(),
        windows,
    };
    Arc::new(Policy::new(Vec::new(), vec![campaign(1, "one"), campaign(2, "two")]))
}

fn interest(name: &str) -> Interest {
    Interest {
        endpoint: endpoint(name),
        apps: Vec::new(),
        channels: Vec::new(),
        kinds: KINDS.to_vec(),
        event_names: Vec::new(),
        settle_ms: SETTLE_MS,
        max_age_ms: MAX_AGE_MS,
        late_credit: LateCredit::Withhold,
    }
}

fn attributed(spreadid: u32, click_id: &str) -> Credit {
    let details = TouchDetails {
        purpose: crate::facts::event::Purpose::Ua,
        lookback_ms: 0,
        site: "".into(),
        subs: Default::default(),
        ad: None,
    };
    let touch = CreditedTouch {
        kind: TouchKind::Click,
        time: at(0),
        click_id: click_id.into(),
        match_type: MatchType::ClickId,
        details: Box::new(details),
    };
    Credit {
        status: Status::Attributed,
        spreadid: SpreadId(spreadid),
        touch: Some(touch),
        reject_reason: None,
        contributors: Vec::new(),
    }
}

fn uncredited(status: Status) -> Credit {
    Credit::uncredited(status, None)
}

fn activation_row(credit: &Credit) -> Row {
    let activation = Activation {
        pid: Pid(1),
        id: "a".into(),
        time: at(5),
        install_begin_time: None,
        click_id: "".into(),
        ids: Vec::new(),
        device: Device::default(),
        app_version: "".into(),
        props: Vec::new(),
    };
    let decision =
        Decision { install_type: InstallType::Install, original: None, credit: credit.clone() };
    Row { revision: 3, ..build_row::activation_row(&activation, &decision) }
}

fn effect_row(credit: &Credit) -> Row {
    let effect = Effect {
        pid: Pid(1),
        id: "e".into(),
        name: "purchase".into(),
        time: at(5),
        ids: Vec::new(),
        device: Device::default(),
        app_version: "".into(),
        revenue: "".into(),
        currency: "".into(),
        props: Vec::new(),
    };
    let inheritance = Inheritance { activation: None, credit: credit.clone(), credit_of: None };
    build_row::effect_row(&effect, inheritance)
}

#[track_caller]
fn check(before: Option<&Credit>, row: &Row, expected: &[CallbackKind]) {
    let interests = Interests::new(vec![interest("all")], policy());
    let planned = interests.plan(before, row);
    let kinds: Vec<CallbackKind> = planned.iter().map(|planned| planned.kind).collect();
    assert_eq!(kinds, expected);
}

#[test]
fn only_attributed_events_are_reported_and_to_webhooks_also_rejected_ones() {
    use CallbackKind::{
        Activation, ActivationAttributed, ActivationChanged, ActivationRejected, Effect,
        EffectAttributed,
    };
    let credit = attributed(1, "c1");
    check(None, &activation_row(&credit), &[Activation, ActivationAttributed]);
    check(None, &effect_row(&credit), &[Effect, EffectAttributed]);
    for status in [Status::Organic, Status::Unattributed, Status::Duplicate, Status::Orphan] {
        check(None, &activation_row(&uncredited(status)), &[]);
        check(None, &effect_row(&uncredited(status)), &[]);
    }
    let rejected = Credit::uncredited(Status::Rejected, Some(RejectReason::Blocked));
    check(None, &activation_row(&rejected), &[ActivationRejected]);
    check(None, &effect_row(&rejected), &[]);
    // Changes.
    let other = attributed(1, "c2");
    let all = [Activation, ActivationAttributed, ActivationChanged];
    check(Some(&other), &activation_row(&credit), &all);
    check(Some(&uncredited(Status::Organic)), &activation_row(&credit), &all);
    check(Some(&credit), &activation_row(&credit), &[Activation, ActivationAttributed]);
    check(Some(&credit), &activation_row(&uncredited(Status::Organic)), &[ActivationChanged]);
    check(Some(&credit), &activation_row(&rejected), &[ActivationRejected, ActivationChanged]);
    // The change before, from an ad, may not be sent yet.
    let duplicate = activation_row(&uncredited(Status::Duplicate));
    check(Some(&uncredited(Status::Organic)), &duplicate, &[ActivationChanged]);
    check(Some(&uncredited(Status::Duplicate)), &duplicate, &[]);
}

#[test]
fn a_callback_is_planned_for_the_endpoints_that_want_it() {
    let interests = vec![
        Interest { channels: vec!["one".into()], ..interest("channel") },
        Interest { channels: vec!["two".into()], ..interest("other channel") },
        Interest { channels: vec!["third".into()], ..interest("third channel") },
        Interest { apps: vec![Pid(1)], ..interest("app") },
        Interest { apps: vec![Pid(2)], ..interest("other app") },
        Interest { event_names: vec!["purchase".into()], ..interest("name") },
        Interest { event_names: vec!["login".into()], ..interest("other name") },
        Interest { kinds: vec![CallbackKind::ActivationRejected], ..interest("other kind") },
    ];
    let interests = Interests::new(interests, policy());
    let names = |before: Option<&Credit>, row: &Row, kind| -> Vec<String> {
        let planned = interests.plan(before, row).into_iter();
        let of_kind = planned.filter(|planned| planned.kind == kind);
        of_kind.map(|planned| planned.endpoint.as_str().to_owned()).collect()
    };
    let credit = attributed(1, "c1");
    let of_effect = names(None, &effect_row(&credit), CallbackKind::Effect);
    assert_eq!(of_effect, ["channel", "app", "name"]);
    let of_activation = names(None, &activation_row(&credit), CallbackKind::Activation);
    assert_eq!(of_activation, ["channel", "app", "name", "other name"]);
    // A channel learns that it has lost the credit, although that has moved on since.
    let changed = CallbackKind::ActivationChanged;
    let of_change = names(Some(&attributed(2, "c2")), &activation_row(&credit), changed);
    let expected = ["channel", "other channel", "third channel", "app", "name", "other name"];
    assert_eq!(of_change, expected);
}

#[test]
fn a_planned_callback_has_the_revision_and_credit_of_the_row() {
    let interests = Interests::new(vec![interest("all")], policy());
    let credit = attributed(1, "c1");
    let planned = interests.plan(None, &activation_row(&credit));
    let expected = PlannedCallback {
        endpoint: endpoint("all"),
        kind: CallbackKind::Activation,
        credit: CreditMark::of_credit(&credit),
        revision: 3,
        event_time: at(5),
        settle_ms: SETTLE_MS,
        max_age_ms: MAX_AGE_MS,
    };
    assert_eq!(planned.first(), Some(&expected));
    assert!(Interests::default().is_empty());
    assert!(Interests::default().plan(None, &activation_row(&credit)).is_empty());
    assert_eq!(interests.of(&endpoint("all")).map(|it| it.settle_ms), Some(SETTLE_MS));
}

#[test]
fn another_campaign_touch_or_reason_is_another_credit() {
    let marks = [
        CreditMark::of_credit(&attributed(1, "c1")),
        CreditMark::of_credit(&attributed(1, "c2")),
        CreditMark::of_credit(&attributed(2, "c1")),
        CreditMark::of_credit(&uncredited(Status::Rejected)),
        CreditMark::of_credit(&Credit::uncredited(Status::Rejected, Some(RejectReason::Blocked))),
    ];
    for (index, mark) in marks.iter().enumerate() {
        assert!(marks.iter().skip(index + 1).all(|other| other.fingerprint != mark.fingerprint));
    }
    // The match type and the details of a touch make no difference.
    let mut same = attributed(1, "c1");
    if let Some(touch) = &mut same.touch {
        touch.match_type = MatchType::IpUa;
    }
    assert_eq!(marks.first(), Some(&CreditMark::of_credit(&same)));
}
