//! The counts by quarter of an hour, and what campaigns brought, are what the rows say.
//!
//! Rows stand in another order than what tells of them, so both are added up to a sum for each app
//! that does not depend on the order, and the sums are held against each other. Each entry has a hash
//! in it, so entries that differ give sums that differ.

use std::collections::{BTreeMap, BTreeSet};

use attribution::facts::event::{EventTime, Pid};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Check, Checker, Problem, at};
use crate::StoreError;
use crate::embedded::open::column_families::{BROUGHT, COUNTS};
use crate::embedded::read::aggregates;
use crate::layout::campaign_index::CreditedActivation;
use crate::layout::codec::row::{RowView, TextCell};
use crate::layout::key::RowKey;
use crate::layout::summary_counts::{Dimensions, SummaryKey, Totals};

/// A prime: what is added up is taken modulo it.
const PRIME: u64 = (1 << 61) - 1;

/// Of each app what its rows say, less what the tables do.
#[derive(Default)]
pub struct Told {
    counts: BTreeMap<Pid, u64>,
    brought: BTreeMap<Pid, u64>,
}

impl Told {
    pub fn add_row(&mut self, key: &RowKey, view: &RowView<'_>) {
        let counted = SummaryKey::new(key, Dimensions::of_view(view));
        let count = Totals::row(view.text(TextCell::Revenue));
        add(&mut self.counts, key.pid, hash_of_count(&counted.encode(), &count));
        if CreditedActivation::has(view.event_type, view.status) {
            let hash = hash_of_brought(
                &CreditedActivation::of(key).encode(),
                &key.partition.to_be_bytes(),
            );
            add(&mut self.brought, key.pid, hash);
        }
    }
}

impl Checker<'_> {
    /// After the rows were added up.
    pub fn check_told(&mut self, mut told: Told) -> Result<(), StoreError> {
        self.scan_table(Check::Counts, COUNTS, |checker, chunk| {
            checker.report.looked(Check::Counts, chunk.len());
            for (key, value) in chunk {
                match SummaryKey::decode(&key).zip(Totals::decode(&value)) {
                    Some((counted, _)) if checker.is_gone(counted.pid, counted.time) => {}
                    Some((counted, count)) => {
                        let hash = hash_of_count(&key, &count);
                        add(&mut told.counts, counted.pid, PRIME - hash);
                    }
                    None => checker.find_count(Problem::CountUnreadable, || at(COUNTS, &key)),
                }
            }
            Ok(())
        })?;
        self.scan_table(Check::Counts, BROUGHT, |checker, chunk| {
            checker.report.looked(Check::Counts, chunk.len());
            for (key, value) in chunk {
                match aggregates::decode(&key, &value) {
                    Some(row) if checker.is_gone(row.pid, row.event_time) => {}
                    Some(row) => {
                        let hash = hash_of_brought(&key, &value);
                        add(&mut told.brought, row.pid, PRIME - hash);
                    }
                    None => checker.find_count(Problem::BroughtUnreadable, || at(BROUGHT, &key)),
                }
            }
            Ok(())
        })?;
        for (problem, sums) in
            [(Problem::CountDiffers, told.counts), (Problem::BroughtDiffers, told.brought)]
        {
            let other: BTreeSet<Pid> =
                sums.into_iter().filter(|(_, sum)| *sum != 0).map(|(pid, _)| pid).collect();
            for pid in other {
                let named = self.app_name(pid);
                self.find_count(problem, || named);
            }
        }
        Ok(())
    }

    fn is_gone(&self, pid: Pid, time: EventTime) -> bool {
        self.app(pid).is_some_and(|app| time < app.oldest)
    }
}

fn add(sums: &mut BTreeMap<Pid, u64>, pid: Pid, hash: u64) {
    let sum = sums.entry(pid).or_default();
    *sum = (*sum + hash) % PRIME;
}

/// Adds up as counts do: that of a sum is the sum of both.
fn hash_of_count(key: &[u8], count: &Totals) -> u64 {
    let rows = count.rows.rem_euclid(PRIME.cast_signed()).cast_unsigned();
    let [of_rows, of_revenue] = [0, 1].map(|seed| xxh3_64_with_seed(key, seed) % PRIME);
    (times(rows, of_rows) + times(count.revenue.modulo(PRIME), of_revenue)) % PRIME
}

fn hash_of_brought(key: &[u8], value: &[u8]) -> u64 {
    xxh3_64_with_seed(&[key, value].concat(), 0) % PRIME
}

fn times(one: u64, other: u64) -> u64 {
    (u128::from(one) * u128::from(other) % u128::from(PRIME)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_sum_is_the_sum_of_hashes() {
        let key = b"some key";
        let parts =
            [Totals::row("0.1"), Totals::row("-3000000000000000000000.25"), Totals::row("7")];
        let (mut whole, mut hashes) = (Totals::default(), 0);
        for part in parts {
            whole.add(&part);
            hashes = (hashes + hash_of_count(key, &part)) % PRIME;
        }
        assert_eq!(hash_of_count(key, &whole), hashes);
        whole.add(&Totals { rows: 0, ..Totals::row("0.01") });
        assert_ne!(hash_of_count(key, &whole), hashes);
        assert_eq!((hash_of_count(key, &whole.negated()) + hash_of_count(key, &whole)) % PRIME, 0);
    }
}
