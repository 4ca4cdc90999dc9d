//! Days of traffic of a few devices, as the broker took it: under short windows most of it expires.

use std::sync::Arc;

use attribution::facts::event::{EventTime, Fact};
use attribution::rules::expiry::DISORDER_MS;
use attribution::rules::policy::{AppPolicy, HOUR_MS, Policy};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::facts::{DAY, HOUR, MINUTE, SECOND, a_and, activation, click, effect, impression};
use super::rules::X;
use super::show::Shown;

/// A message, and what the broker stamped it with.
#[derive(Debug, Clone)]
pub struct Message {
    pub fact: Fact,
    pub broker_ms: i64,
}

/// Windows of an hour or two, so that days of traffic see most of it expire.
pub fn short(change: impl FnOnce(&mut AppPolicy)) -> Arc<Policy> {
    let mut app = AppPolicy::new(X, "app-x");
    app.windows.click_ms = HOUR_MS;
    app.windows.click_probabilistic_ms = HOUR_MS / 2;
    app.windows.impression_ms = HOUR_MS / 2;
    app.windows.impression_probabilistic_ms = HOUR_MS / 3;
    app.probabilistic = true;
    app.reattribution_window_ms = 2 * HOUR_MS;
    app.effect_window_ms = 3 * HOUR_MS;
    app.correction_horizon_ms = Some(HOUR_MS);
    change(&mut app);
    Arc::new(Policy::new(vec![app], vec![]))
}

/// Traffic of a few devices, each always with the same ids, over some days.
pub fn traffic() -> impl Strategy<Value = Vec<Fact>> {
    let gaps = select(vec![
        0,
        0,
        1,
        20 * SECOND,
        MINUTE - 1,
        MINUTE,
        5 * MINUTE,
        10 * MINUTE,
        20 * MINUTE,
        HOUR / 2,
        HOUR,
        HOUR + 1,
        2 * HOUR,
        3 * HOUR,
        6 * HOUR,
    ]);
    let one = (gaps, 0..4u8, 0..12u8, any::<bool>(), 0..6usize);
    vec(one, 20..120).prop_map(|drawn| {
        let mut time = 0;
        let mut facts: Vec<Fact> = Vec::new();
        for (number, (gap, device, what, again, back)) in drawn.into_iter().enumerate() {
            time += gap;
            // An id that is given twice, while both can still meet.
            let number = if again && gap <= MINUTE { number.saturating_sub(1) } else { number };
            let draft = match what {
                0..3 => click(&format!("c{number}"), a_and(time)),
                3 => click(&format!("c{number}"), a_and(time)).retargeting(),
                4 => impression(&format!("c{number}"), a_and(time)),
                5 => click(&format!("c{number}"), a_and(time)).lookback(2 * HOUR),
                6 => activation(&format!("a{number}"), a_and(time))
                    .names(&format!("c{}", number.saturating_sub(back))),
                7..10 => activation(&format!("a{number}"), a_and(time)),
                _ => effect(&format!("e{number}"), a_and(time)),
            };
            let draft = match device {
                0 => draft.anyone(),
                device => draft.only("oaid", &format!("d{device}")),
            };
            facts.push(draft.ip("203.0.113.9").ua("u").into());
        }
        facts
    })
}

/// The facts as messages of six partitions, each in the order in which the broker took them. A
/// few come twice.
pub fn partitions(facts: &[Fact], lateness: &Lateness) -> Vec<Vec<Message>> {
    let mut partitions = vec![Vec::new(); 6];
    for (place, (fact, (late_ms, again_ms))) in
        facts.iter().zip(lateness.iter().cycle()).enumerate()
    {
        let partition = fact.family() as usize * 2 + place % 2;
        for late_ms in [Some(*late_ms), *again_ms].into_iter().flatten() {
            let broker_ms = i64::try_from(fact.time().millis()).unwrap() + late_ms;
            partitions[partition].push(Message { fact: fact.clone(), broker_ms });
        }
    }
    partitions.iter_mut().for_each(|messages| messages.sort_by_key(|one| one.broker_ms));
    partitions
}

pub type Lateness = Vec<(i64, Option<i64>)>;

/// Up to the horizon, and a day ahead.
pub fn lateness() -> impl Strategy<Value = Lateness> {
    let late = select(vec![0, 0, 1, MINUTE, HOUR / 2, HOUR - 1, HOUR, -5 * MINUTE, -DAY]);
    vec((late, prop::option::weighted(0.1, select(vec![0, MINUTE, HOUR]))), 20..60)
}

pub fn decided(rows: Vec<Shown>) -> Vec<String> {
    let mut decided: Vec<_> = rows.into_iter().map(|row| row.decision).collect();
    decided.sort();
    decided
}

/// The least broker time consumed of all partitions that are not at their end.
pub fn consumed(partitions: &[Vec<Message>], next: &[usize]) -> Option<EventTime> {
    let last = |(messages, next): (&Vec<Message>, &usize)| {
        Some(messages.get(next.checked_sub(1)?)?.broker_ms)
    };
    let all = || partitions.iter().zip(next);
    let newest = all().filter_map(last).max();
    let open = all().filter(|(messages, next)| **next < messages.len());
    let least = open.map(last).min().unwrap_or(newest);
    until(least)
}

/// As far ahead of the broker's time as disorder among its timestamps may bring it.
pub fn until(broker_ms: Option<i64>) -> Option<EventTime> {
    Some(EventTime::from_millis(broker_ms?)?.plus(DISORDER_MS))
}

pub fn counting(counts: bool) -> Arc<Policy> {
    short(|app| app.fraud.clicks_per_device_max = if counts { 2 } else { 0 })
}
