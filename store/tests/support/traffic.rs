//! Days of traffic of a few devices with broker timestamps; with short windows, most of it expires.

use std::sync::Arc;

use attribution::facts::event::{EventTime, Fact};
use attribution::rules::expiry::DISORDER_MS;
use attribution::rules::policy::{AppPolicy, HOUR_MS, Policy};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::facts::{DAY, HOUR, MINUTE, SECOND, a_plus, activation, click, effect, impression};
use super::row_text::RowText;
use super::rules::X;

/// A message and its broker timestamp.
#[derive(Debug, Clone)]
pub struct Message {
    pub fact: Fact,
    pub broker_ms: i64,
}

/// Returns a policy with windows of one to three hours, so that most of the state of several days expires.
pub fn short_windows(change: impl FnOnce(&mut AppPolicy)) -> Arc<Policy> {
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

/// Generates traffic of a few devices over some days; each device always has the same id.
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
    let event = (gaps, 0..4u8, 0..12u8, any::<bool>(), 0..6usize);
    vec(event, 20..120).prop_map(|drawn| {
        let mut time = 0;
        let mut facts: Vec<Fact> = Vec::new();
        for (number, (gap, device, kind, repeats_id, back)) in drawn.into_iter().enumerate() {
            time += gap;
            // Reuses an id only while the first fact is still kept.
            let number =
                if repeats_id && gap <= MINUTE { number.saturating_sub(1) } else { number };
            let draft = match kind {
                // Messages with one id have different tokens.
                0..3 => {
                    click(&format!("c{number}"), a_plus(time)).prop("callback", &format!("t{time}"))
                }
                3 => click(&format!("c{number}"), a_plus(time)).retargeting(),
                4 => impression(&format!("c{number}"), a_plus(time)).prop("ad_id", "4"),
                5 => click(&format!("c{number}"), a_plus(time)).lookback(2 * HOUR),
                6 => activation(&format!("a{number}"), a_plus(time))
                    .click_id(&format!("c{}", number.saturating_sub(back))),
                7..10 => activation(&format!("a{number}"), a_plus(time)),
                _ => effect(&format!("e{number}"), a_plus(time)),
            };
            let draft = match device {
                0 => draft.without_ids(),
                device => draft.only("oaid", &format!("d{device}")),
            };
            facts.push(draft.ip("203.0.113.9").ua("u").into());
        }
        facts
    })
}

/// Distributes the facts as messages over six partitions, in the order of broker time. A few are delivered twice.
pub fn partitions(facts: &[Fact], lateness: &Lateness) -> Vec<Vec<Message>> {
    let mut partitions = vec![Vec::new(); 6];
    for (index, (fact, (late_ms, again_ms))) in
        facts.iter().zip(lateness.iter().cycle()).enumerate()
    {
        let partition = fact.id_space().family() as usize * 2 + index % 2;
        for late_ms in [Some(*late_ms), *again_ms].into_iter().flatten() {
            let broker_ms = i64::try_from(fact.time().millis()).unwrap() + late_ms;
            partitions[partition].push(Message { fact: fact.clone(), broker_ms });
        }
    }
    partitions.iter_mut().for_each(|messages| messages.sort_by_key(|message| message.broker_ms));
    partitions
}

/// How late each fact and, if any, its redelivery are, in ms.
pub type Lateness = Vec<(i64, Option<i64>)>;

/// Generates lateness up to the correction horizon, and events up to a day early.
pub fn lateness() -> impl Strategy<Value = Lateness> {
    let late = select(vec![0, 0, 1, MINUTE, HOUR / 2, HOUR - 1, HOUR, -5 * MINUTE, -DAY]);
    vec((late, prop::option::weighted(0.1, select(vec![0, MINUTE, HOUR]))), 20..60)
}

pub fn sorted_decisions(rows: Vec<RowText>) -> Vec<String> {
    let mut decided: Vec<_> = rows.into_iter().map(|row| row.decision).collect();
    decided.sort();
    decided
}

/// Returns the low watermark: the least consumed broker time of all partitions with unread messages.
pub fn low_watermark(partitions: &[Vec<Message>], next: &[usize]) -> Option<EventTime> {
    let last = |(messages, next): (&Vec<Message>, &usize)| {
        Some(messages.get(next.checked_sub(1)?)?.broker_ms)
    };
    let all = || partitions.iter().zip(next);
    let newest = all().filter_map(last).max();
    let open = all().filter(|(messages, next)| **next < messages.len());
    let least = open.map(last).min().unwrap_or(newest);
    watermark_at(least)
}

/// Returns the low watermark for a broker time: the time plus the tolerated disorder of broker timestamps.
pub fn watermark_at(broker_ms: Option<i64>) -> Option<EventTime> {
    Some(EventTime::from_millis(broker_ms?)?.plus(DISORDER_MS))
}

/// Returns a policy with short windows, with or without a limit of two clicks per device.
pub fn click_limit(is_limited: bool) -> Arc<Policy> {
    short_windows(|app| app.fraud.clicks_per_device_max = if is_limited { 2 } else { 0 })
}
