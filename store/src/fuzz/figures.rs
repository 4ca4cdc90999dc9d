//! Counts and metadata: adding damaged values does not panic, and sums do not depend on the order.

use attribution::facts::event::EventTime;

use crate::apps::record::App;
use crate::embedded::write::regions;
use crate::expiry::floor::ExpiryRecord;
use crate::layout::decimal_sum::Amount;
use crate::layout::hourly_counts::Cell;
use crate::layout::key::Key;
use crate::layout::region::Regions;
use crate::layout::summary_counts::Totals;

/// The first byte is the length of the first of two values.
pub fn figures(input: &[u8]) {
    let Some((length, values)) = input.split_first() else { return };
    let (a, b) = values.split_at(usize::from(*length).min(values.len()));
    if let Some((a, b)) = Cell::decode(a).zip(Cell::decode(b)) {
        cells(a, b);
    }
    if let Some((a, b)) = Totals::decode(a).zip(Totals::decode(b)) {
        counts(a, b);
    }
    let texts = std::str::from_utf8(a).ok().zip(std::str::from_utf8(b).ok());
    if let Some((a, b)) = texts.and_then(|(a, b)| Amount::parse(a).zip(Amount::parse(b))) {
        amounts(a, b);
    }
    if let Some(app) = App::decode(a) {
        assert_eq!(App::decode(&app.encode()), Some(app));
        assert!(app.partitions(64).all(|partition| partition < 64));
    }
    if let Some(record) = ExpiryRecord::decode(a) {
        assert_eq!(ExpiryRecord::decode(&record.encode()), Some(record));
    }
    let decoded = [(a, 0), (b, 1)].map(|(value, start)| {
        let mut key = Key::default();
        key[0] = start;
        regions::decode(key, value)
    });
    if let [Some(a), Some(b)] = decoded {
        let Some(mut regions) = Regions::of(1, 1 << 20, vec![a, b]) else { return };
        let now = EventTime::default();
        assert!(regions.skew(|region| region.size.bytes as f64) >= 0.0);
        if let Some(region) = regions.at_mut(0) {
            region.size.add(1, 1);
            region.writes.add(1, now);
        }
        let half = regions.at(1).map(|region| region.size).unwrap_or_default();
        let mut at = Key::default();
        at[0] = 2;
        regions.split(1, at, half);
        assert_eq!(regions.merge(2), Some(at));
        regions.merge(1);
        assert_eq!(regions.iter().len(), 1);
    }
}

fn cells(a: Cell, b: Cell) {
    let sum = |a: Cell, b: &Cell| {
        let mut sum = a;
        sum.add(b);
        sum
    };
    assert_eq!(Cell::decode(&a.encode()), Some(a));
    assert_eq!(sum(a, &b), sum(b, &a));
    assert_eq!(sum(sum(a, &b), &b.negated()), a);
    let _ = sum(a, &b).rows();
}

fn counts(a: Totals, b: Totals) {
    let sum = |a: Totals, b: &Totals| {
        let mut sum = a;
        sum.add(b);
        sum
    };
    assert_eq!(Totals::decode(&a.encode()), Some(a));
    assert_eq!(sum(a, &b), sum(b, &a));
    assert_eq!(sum(sum(a, &b), &b.negated()), a);
    // Sums of revenue are never longer; a longer sum may not decode.
    let (both, written) = (sum(a, &b), sum(a, &b).encode());
    if written.len() < 80 {
        assert_eq!(Totals::decode(&written), Some(both));
    }
}

fn amounts(a: Amount, b: Amount) {
    let (mut forward, mut backward) = (a, b);
    forward.add(&b);
    backward.add(&a);
    assert_eq!(forward, backward);
    assert_eq!(Amount::parse(&a.to_string()), Some(a));
    forward.add(&b.negated());
    assert_eq!(forward, a);
}
