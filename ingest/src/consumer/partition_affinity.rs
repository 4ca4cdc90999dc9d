//! Whether an app's records come on one partition number, as they do where each has the app's key,
//! all topics have as many partitions, and all producers choose among them by the same hash.
//!
//! Nothing is known of that hash: what counts is where an app's records come. Where partitions are
//! added, an app moves once, and what was produced before stays where it is, so it is no fault that
//! an app is in two places. It is one that both are used side by side, by the broker's time, for
//! longer than producers take to hear of new partitions. Then what is not in the place of most of
//! the app's records is misplaced, also what came before that was seen.
//!
//! Bounded: of each app that there is, a few places.

use std::collections::HashMap;

use attribution::facts::event::Pid;

use crate::kafka::partitions::Partitions;
use crate::kafka::topics::{PerTopic, TopicKind, TopicNames};

/// Producers ask for new partitions every five minutes, the Java client as librdkafka.
const SETTLED_AFTER_MS: i64 = 10 * 60 * 1000;
/// Places of an app that are told apart; of more, those with the fewest records are taken for one.
const PLACES_MAX: usize = 4;

/// The places of every app, since the partitions became as many as there are.
#[derive(Debug, Default)]
pub struct PartitionAffinity(HashMap<Pid, Vec<Place>>);

/// An app's records of one partition number, in all topics.
#[derive(Debug)]
struct Place {
    partition: i32,
    /// By the broker's time.
    first_ms: i64,
    last_ms: i64,
    records: u64,
    /// Those that were not told as misplaced.
    untold: PerTopic<u64>,
    /// Of the newest.
    key: Key,
}

/// What key a record has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Missing,
    App,
    Other,
}

/// Records that were found to be misplaced now.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyMismatch {
    pub count: PerTopic<u64>,
    pub partition: i32,
    /// Where most of the app's records are, of those that were read: where partitions are read one
    /// after the other, it may be the astray ones that come first.
    pub home: i32,
    /// What is wrong with the keys in either place.
    key: Key,
}

impl PartitionAffinity {
    /// Takes the place of a record of an app, with its key.
    pub fn take(
        &mut self,
        pid: Pid,
        (topic, partition, broker_ms): (TopicKind, i32, i64),
        key: Key,
    ) -> Option<KeyMismatch> {
        // The first is the home.
        let places = self.0.entry(pid).or_default();
        if let [home] = &mut places[..]
            && home.partition == partition
        {
            home.note(topic, broker_ms, key);
            return None;
        }
        let index = find(places, partition, broker_ms);
        let place = &mut places[index];
        place.note(topic, broker_ms, key);
        if place.records > places[0].records.saturating_mul(2) {
            places.swap(0, index);
        }
        settle(places)
    }

    /// There are more partitions, and apps move.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

impl Place {
    fn new(partition: i32, broker_ms: i64) -> Self {
        Self {
            partition,
            first_ms: broker_ms,
            last_ms: broker_ms,
            records: 0,
            untold: PerTopic::default(),
            key: Key::App,
        }
    }

    fn note(&mut self, topic: TopicKind, broker_ms: i64, key: Key) {
        self.key = key;
        self.first_ms = self.first_ms.min(broker_ms);
        self.last_ms = self.last_ms.max(broker_ms);
        self.records += 1;
        *self.untold.of_mut(topic) += 1;
    }

    /// Whether each was used long after the other was: an app that moves leaves one for good.
    fn is_beside(&self, other: &Self) -> bool {
        let outlasts = |a: &Self, b: &Self| a.last_ms.saturating_sub(b.first_ms) > SETTLED_AFTER_MS;
        outlasts(self, other) && outlasts(other, self)
    }
}

/// The place of a partition, perhaps a new one.
fn find(places: &mut Vec<Place>, partition: i32, broker_ms: i64) -> usize {
    if let Some(index) = places.iter().position(|place| place.partition == partition) {
        return index;
    }
    if places.len() < PLACES_MAX {
        places.push(Place::new(partition, broker_ms));
        return places.len() - 1;
    }
    // What was counted of it stays, so that a place with many records gets in among those with few.
    let fewest = (1..places.len()).min_by_key(|index| places[*index].records).unwrap_or(0);
    places[fewest].partition = partition;
    fewest
}

/// What of all places is now known to be misplaced.
fn settle(places: &mut [Place]) -> Option<KeyMismatch> {
    let (home, others) = places.split_first_mut()?;
    let mut found: Option<KeyMismatch> = None;
    for other in others.iter_mut().filter(|other| other.is_beside(home)) {
        let untold = std::mem::take(&mut other.untold);
        if untold == PerTopic::default() {
            continue;
        }
        let misplaced = found.get_or_insert_with(|| KeyMismatch {
            count: PerTopic::default(),
            partition: other.partition,
            home: home.partition,
            key: if other.key == Key::App { home.key } else { other.key },
        });
        for topic in TopicKind::ALL {
            *misplaced.count.of_mut(topic) += untold.of(topic);
        }
    }
    found
}

impl Key {
    pub fn of(key: Option<&[u8]>, app: &str) -> Self {
        match key {
            None | Some([]) => Self::Missing,
            Some(key) if key == app.as_bytes() => Self::App,
            Some(_) => Self::Other,
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Missing => "some have no message key: send each with its app's key",
            Self::Other => {
                "the message key of some is another than their app's: send each with its app's key"
            }
            Self::App => {
                "give all producers the same partitioner, and all three topics as many partitions"
            }
        }
    }
}

impl KeyMismatch {
    pub fn warn(&self, app: &str, names: &TopicNames) {
        let Self { count, partition, home, key } = self;
        let of_topic = |topic: &TopicKind| *count.of(*topic) > 0;
        let Some(topic) = TopicKind::ALL.into_iter().find(of_topic) else { return };
        tracing::warn!(
            topic = %names.of(topic),
            app,
            partition,
            home,
            "records of an app come on another partition than most that was read of it: {}; exports \
             are right all the same",
            key.advice()
        );
    }
}

/// Partitions of different topics belong together by their numbers, so there should be as many.
pub fn warn_of_counts(names: &TopicNames, partitions: &Partitions) {
    let counts = TopicKind::ALL.map(|topic| partitions.count(topic));
    if counts.iter().all(|count| *count == counts[0]) {
        return;
    }
    let counts =
        TopicKind::ALL.map(|topic| format!("{} {}", names.of(topic), partitions.count(topic)));
    tracing::warn!(
        partitions = counts.join(", "),
        "the three topics have not as many partitions as each other, so that an app's records come on \
         different ones: add partitions where there are fewer; exports are right all the same"
    );
}

#[cfg(test)]
mod tests {
    use TopicKind::{Activations, Clicks, Effects};

    use super::*;

    const MINUTE_MS: i64 = 60_000;

    /// Takes records of one app, each as partition and minute: how many were found misplaced.
    fn found(
        placement: &mut PartitionAffinity,
        records: impl IntoIterator<Item = (i32, i64)>,
    ) -> u64 {
        let mut total = 0;
        for (partition, minute) in records {
            let place = (Clicks, partition, minute * MINUTE_MS);
            if let Some(found) = placement.take(Pid(1), place, Key::App) {
                total += found.count.of(Clicks);
            }
        }
        total
    }

    #[track_caller]
    fn check(records: impl IntoIterator<Item = (i32, i64)>, expected: u64) {
        assert_eq!(found(&mut PartitionAffinity::default(), records), expected);
    }

    fn on(partition: i32, minutes: std::ops::Range<i64>) -> impl Iterator<Item = (i32, i64)> {
        minutes.map(move |minute| (partition, minute))
    }

    fn by_turns(
        one: impl Iterator<Item = (i32, i64)>,
        other: impl Iterator<Item = (i32, i64)>,
    ) -> impl Iterator<Item = (i32, i64)> {
        one.zip(other).flat_map(|(one, other)| [one, other])
    }

    #[test]
    fn one_place_is_right() {
        check([], 0);
        check(on(3, 0..100), 0);
        check(on(3, 0..100).chain(on(3, 0..100)), 0);
    }

    #[test]
    fn an_app_may_move_in_whatever_order_that_is_read() {
        check(on(3, 0..100).chain(on(5, 100..200)), 0);
        check(on(5, 100..200).chain(on(3, 0..100)), 0);
        check(by_turns(on(3, 0..100), on(5, 100..200)), 0);
        check(on(3, 0..100).chain(on(5, 100..200)).chain(on(1, 200..300)), 0);
        // Producers hear of it one after the other.
        check(on(3, 0..110).chain(on(5, 100..200)), 0);
        check(by_turns(on(3, 0..110), on(5, 99..209)), 0);
    }

    #[test]
    fn two_places_side_by_side_are_wrong() {
        check(on(3, 0..112).chain(on(5, 100..112)), 12);
        check(on(5, 100..112).chain(on(3, 0..112)), 12);
        check(on(3, 0..1000).chain((0..10).map(|n| (5, n * 100))), 10);
        check(by_turns(on(3, 0..100), on(5, 0..100)), 100);
    }

    #[test]
    fn one_record_astray_is_told_once_the_app_is_seen_to_stay() {
        let mut placement = PartitionAffinity::default();
        assert_eq!(found(&mut placement, on(3, 0..50).chain([(5, 50)])), 0);
        assert_eq!(found(&mut placement, on(3, 50..61)), 0);
        assert_eq!(found(&mut placement, on(3, 61..62)), 1);
        assert_eq!(found(&mut placement, on(3, 62..99)), 0, "once");
    }

    #[test]
    fn the_home_is_where_most_are() {
        check([(5, 0)].into_iter().chain(on(3, 0..50)), 0);
        check([(5, 0)].into_iter().chain(on(3, 0..50)).chain([(5, 50)]), 2);
    }

    #[test]
    fn spread_over_all_partitions_most_are_wrong_in_few_places() {
        let mut placement = PartitionAffinity::default();
        let count = found(&mut placement, (0..10_000).map(|n| ((n % 64) as i32, n / 100)));
        assert!((8_000..10_000).contains(&count), "{count}");
        assert_eq!(placement.0[&Pid(1)].len(), PLACES_MAX);
        // A home that came late is found all the same.
        let mut placement = PartitionAffinity::default();
        assert_eq!(found(&mut placement, (0..64).map(|n| (n, 0)).chain(on(70, 0..10_000))), 0);
        let count = found(&mut placement, [(5, 9_000)]);
        assert!((1..=64).contains(&count), "{count}");
    }

    #[test]
    fn apps_and_topics_are_counted_apart() {
        let mut placement = PartitionAffinity::default();
        let mut take = |pid, topic, partition, minute| {
            placement.take(Pid(pid), (topic, partition, minute * MINUTE_MS), Key::Missing)
        };
        for minute in 0..50 {
            assert_eq!(take(1, Clicks, 3, minute), None);
            assert_eq!(take(2, Clicks, 4, minute), None);
        }
        for (topic, expected) in [(Effects, [0, 0, 1]), (Activations, [0, 1, 0])] {
            let misplaced = take(1, topic, 4, 20).expect("both are used");
            assert_eq!((misplaced.partition, misplaced.home), (4, 3));
            assert_eq!(TopicKind::ALL.map(|topic| *misplaced.count.of(topic)), expected);
        }
    }

    /// Whichever place is read first, and whatever its first record is.
    #[test]
    fn a_key_that_is_not_the_apps_is_told_of_either_place() {
        for wrong in [Key::Missing, Key::Other] {
            for places in [[(3, Key::App), (5, wrong)], [(5, wrong), (3, Key::App)]] {
                let mut placement = PartitionAffinity::default();
                placement.take(Pid(1), (Clicks, places[0].0, 0), Key::App);
                let records = places.iter().flat_map(|place| (0..50).map(move |n| (place, n)));
                let told: Vec<Key> = records
                    .filter_map(|((partition, key), minute)| {
                        let place = (Clicks, *partition, minute * MINUTE_MS);
                        Some(placement.take(Pid(1), place, *key)?.key)
                    })
                    .collect();
                assert!(!told.is_empty() && told.iter().all(|key| *key == wrong), "{told:?}");
            }
        }
    }

    #[test]
    fn more_partitions_are_another_beginning() {
        let mut placement = PartitionAffinity::default();
        assert_eq!(found(&mut placement, on(3, 0..50)), 0);
        placement.forget();
        assert_eq!(found(&mut placement, on(5, 0..50)), 0);
    }

    #[test]
    fn any_time_is_taken() {
        let mut placement = PartitionAffinity::default();
        for broker_ms in [i64::MAX, 0, i64::MIN, -1] {
            for partition in [0, i32::MAX] {
                let place = (Clicks, partition, broker_ms);
                let _ = placement.take(Pid(1), place, Key::of(None, "app-x"));
            }
        }
    }

    #[test]
    fn a_key_is_the_apps_or_not() {
        assert_eq!(Key::of(None, "app-x"), Key::Missing);
        assert_eq!(Key::of(Some(b""), "app-x"), Key::Missing);
        assert_eq!(Key::of(Some(b"app-x"), "app-x"), Key::App);
        assert_eq!(Key::of(Some(b"app-y"), "app-x"), Key::Other);
    }
}
