//! Counts and metadata: adding damaged values does not panic, and sums do not depend on the order.

use attribution::facts::event::EventTime;

use crate::apps::spread::App;
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
    let (one, other) = values.split_at(usize::from(*length).min(values.len()));
    if let Some((one, other)) = Cell::decode(one).zip(Cell::decode(other)) {
        cells(one, other);
    }
    if let Some((one, other)) = Totals::decode(one).zip(Totals::decode(other)) {
        counts(one, other);
    }
    let texts = std::str::from_utf8(one).ok().zip(std::str::from_utf8(other).ok());
    if let Some((one, other)) =
        texts.and_then(|(one, other)| Amount::parse(one).zip(Amount::parse(other)))
    {
        amounts(one, other);
    }
    if let Some(app) = App::decode(one) {
        assert_eq!(App::decode(&app.encode()), Some(app));
        assert!(app.partitions(64).all(|partition| partition < 64));
    }
    if let Some(record) = ExpiryRecord::decode(one) {
        assert_eq!(ExpiryRecord::decode(&record.encode()), Some(record));
    }
    let decoded = [(one, 0), (other, 1)].map(|(value, start)| {
        let mut key = Key::default();
        key[0] = start;
        regions::decode(key, value)
    });
    if let [Some(one), Some(other)] = decoded {
        let Some(mut regions) = Regions::of(1, 1 << 20, vec![one, other]) else { return };
        let now = EventTime::default();
        assert!(regions.skew(|region| region.figures.bytes as f64) >= 0.0);
        if let Some(region) = regions.at_mut(0) {
            region.figures.add(1, 1);
            region.writes.add(1, now);
        }
        let half = regions.at(1).map(|region| region.figures).unwrap_or_default();
        let mut at = Key::default();
        at[0] = 2;
        regions.split(1, at, half);
        assert_eq!(regions.merge(2), Some(at));
        regions.merge(1);
        assert_eq!(regions.iter().len(), 1);
    }
}

fn cells(one: Cell, other: Cell) {
    let sum = |one: Cell, other: &Cell| {
        let mut sum = one;
        sum.add(other);
        sum
    };
    assert_eq!(Cell::decode(&one.encode()), Some(one));
    assert_eq!(sum(one, &other), sum(other, &one));
    assert_eq!(sum(sum(one, &other), &other.negated()), one);
    let _ = sum(one, &other).rows();
}

fn counts(one: Totals, other: Totals) {
    let sum = |one: Totals, other: &Totals| {
        let mut sum = one;
        sum.add(other);
        sum
    };
    assert_eq!(Totals::decode(&one.encode()), Some(one));
    assert_eq!(sum(one, &other), sum(other, &one));
    assert_eq!(sum(sum(one, &other), &other.negated()), one);
    // Sums of revenue are never longer; a longer sum may not decode.
    let (both, written) = (sum(one, &other), sum(one, &other).encode());
    if written.len() < 80 {
        assert_eq!(Totals::decode(&written), Some(both));
    }
}

fn amounts(one: Amount, other: Amount) {
    let (mut forward, mut backward) = (one, other);
    forward.add(&other);
    backward.add(&one);
    assert_eq!(forward, backward);
    assert_eq!(Amount::parse(&one.to_string()), Some(one));
    forward.add(&other.negated());
    assert_eq!(forward, one);
}
