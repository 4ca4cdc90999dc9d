//! Fills a store directly with rows, bypassing attribution.

use attribution::facts::device_ids::IdKind;
use attribution::facts::event::{
    Activation, Device, Effect, EventTime, Pid, Purpose, SpreadId, TouchKind,
};
use attribution::facts::match_keys;
use attribution::ledger::record::{EffectRecord, FactRecord};
use attribution::ledger::{DecisionWrite, Ledger, Progress};
use attribution::rules::build_row;
use attribution::rules::inherit::Inheritance;
use attribution::rules::row::{
    Contributor, CreditedTouch, EventType, InstallType, MatchType, Status, TouchDetails,
};
use attribution::rules::winner::Credit;
use store::embedded::Embedded;

use crate::support::START_MS;

const BATCH: usize = 10_000;

/// Commits `total` purchases; `pid_of` maps the index of a purchase to the pid of its app.
pub fn fill(store: &mut Embedded, total: usize, pid_of: impl Fn(u64) -> u32) {
    let mut written = 0;
    while written < total {
        let end = total.min(written + BATCH);
        let batch = (written as u64..end as u64).map(|n| purchase(n, Pid(pid_of(n)))).collect();
        store.commit(batch, &Progress::default()).expect("the commit succeeds");
        written = end;
    }
    store.wait_for_commit().expect("the commit succeeds");
}

/// Returns the credited purchase with this index. Purchases are 10 ms apart; a row has about 230 bytes.
fn purchase(index: u64, pid: Pid) -> DecisionWrite {
    let time = |ms| EventTime::from_millis((START_MS + ms) as i64).expect("the time is valid");
    // The app with pid 1 has campaign 7.
    let spreadid = SpreadId(6 + pid.0);
    let device = Device {
        ip: format!("203.0.113.{}", index % 250).into(),
        ua: "Mozilla/5.0 (Linux; Android 14; V2) AppleWebKit/537.36 Mobile".into(),
        model: format!("V{}", index % 97).into(),
        os: "android".into(),
        os_version: "14".into(),
    };
    let ids = vec![("oaid".into(), format!("{index:032x}").into())];
    let activation = Activation {
        pid,
        id: format!("a-{}", index / 3).into(),
        time: time(index * 10),
        install_begin_time: None,
        click_id: "".into(),
        ids: vec![],
        device: Device::default(),
        app_version: "".into(),
        props: vec![],
    };
    let effect = Effect {
        pid,
        id: format!("e-{index}").into(),
        name: "purchase".into(),
        time: time(index * 10 + 60_000),
        ids,
        device,
        app_version: "1.2".into(),
        revenue: "9.99".into(),
        currency: "CNY".into(),
        props: vec![("level".into(), "3".into())],
    };
    let touch = CreditedTouch {
        kind: TouchKind::Click,
        time: time(index * 10),
        click_id: format!("c-{index}").into(),
        match_type: MatchType::Device(IdKind::Oaid),
        details: Box::new(TouchDetails {
            purpose: Purpose::Ua,
            lookback_ms: 604_800_000,
            site: "site-1".into(),
            subs: Default::default(),
            ad: None,
        }),
    };
    let contributor = Contributor {
        spreadid,
        kind: TouchKind::Impression,
        time: time(index),
        match_type: MatchType::IpUa,
        ad: None,
    };
    let credit = Credit {
        status: Status::Attributed,
        spreadid,
        touch: Some(touch),
        reject_reason: None,
        contributors: vec![contributor],
    };
    let activation = Some((&activation, InstallType::Install));
    let inheritance = Inheritance { activation, credit, credit_of: None };
    let row = build_row::effect_row(&effect, inheritance);
    let key = match_keys::fact_key(EventType::Effect, pid, &effect.id);
    let record = FactRecord::Effect(Box::new(EffectRecord { fact: effect, current_row: None }));
    DecisionWrite { key, record, row, replaced: None, callbacks: Vec::new() }
}
