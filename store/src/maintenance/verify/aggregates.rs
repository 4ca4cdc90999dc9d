//! Checks that the summary counts and the campaign index match the rows.
//!
//! Rows are in another order than their aggregates. So both are reduced to a sum per app that does not depend on the
//! order, and the sums are compared. Each entry adds a hash, so different entries give different sums.

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

/// The prime modulus of all sums.
const PRIME: u64 = (1 << 61) - 1;

/// For each app, the sum of its rows minus the sum of its aggregates: 0 if they match.
#[derive(Default)]
pub struct AggregateSums {
    counts: BTreeMap<Pid, u64>,
    credited: BTreeMap<Pid, u64>,
}

impl AggregateSums {
    pub fn add_row(&mut self, key: &RowKey, view: &RowView<'_>) {
        let count_key = SummaryKey::new(key, Dimensions::of_view(view));
        let count = Totals::row(view.text(TextCell::Revenue));
        add(&mut self.counts, key.pid, hash_of_count(&count_key.encode(), &count));
        if CreditedActivation::has(view.event_type, view.status) {
            let hash = hash_of_credited(
                &CreditedActivation::of(key).encode(),
                &key.partition.to_be_bytes(),
            );
            add(&mut self.credited, key.pid, hash);
        }
    }
}

impl Checker<'_> {
    /// Checks the aggregates; `sums` are those of all rows.
    pub fn check_aggregates(&mut self, mut sums: AggregateSums) -> Result<(), StoreError> {
        self.scan_table(Check::Counts, COUNTS, |checker, chunk| {
            checker.report.add_checked(Check::Counts, chunk.len());
            for (key, value) in chunk {
                match SummaryKey::decode(&key).zip(Totals::decode(&value)) {
                    Some((count_key, _)) if checker.is_expired(count_key.pid, count_key.time) => {}
                    Some((count_key, count)) => {
                        let hash = hash_of_count(&key, &count);
                        add(&mut sums.counts, count_key.pid, PRIME - hash);
                    }
                    None => checker.find_count(Problem::CountUnreadable, || at(COUNTS, &key)),
                }
            }
            Ok(())
        })?;
        self.scan_table(Check::Counts, BROUGHT, |checker, chunk| {
            checker.report.add_checked(Check::Counts, chunk.len());
            for (key, value) in chunk {
                match aggregates::decode(&key, &value) {
                    Some(row) if checker.is_expired(row.pid, row.event_time) => {}
                    Some(row) => {
                        let hash = hash_of_credited(&key, &value);
                        add(&mut sums.credited, row.pid, PRIME - hash);
                    }
                    None => checker.find_count(Problem::BroughtUnreadable, || at(BROUGHT, &key)),
                }
            }
            Ok(())
        })?;
        for (problem, sums) in
            [(Problem::CountDiffers, sums.counts), (Problem::BroughtDiffers, sums.credited)]
        {
            let differing: BTreeSet<Pid> =
                sums.into_iter().filter(|(_, sum)| *sum != 0).map(|(pid, _)| pid).collect();
            for pid in differing {
                let named = self.app_name(pid);
                self.find_count(problem, || named);
            }
        }
        Ok(())
    }

    /// True if retention has passed the rows of an app at a time.
    fn is_expired(&self, pid: Pid, time: EventTime) -> bool {
        self.app(pid).is_some_and(|app| time < app.oldest)
    }
}

fn add(sums: &mut BTreeMap<Pid, u64>, pid: Pid, hash: u64) {
    let sum = sums.entry(pid).or_default();
    *sum = (*sum + hash) % PRIME;
}

/// A linear hash: the hash of the sum of two counts is the sum of their hashes.
fn hash_of_count(key: &[u8], count: &Totals) -> u64 {
    let rows = count.rows.rem_euclid(PRIME.cast_signed()).cast_unsigned();
    let [of_rows, of_revenue] = [0, 1].map(|seed| xxh3_64_with_seed(key, seed) % PRIME);
    (product(rows, of_rows) + product(count.revenue.modulo(PRIME), of_revenue)) % PRIME
}

fn hash_of_credited(key: &[u8], value: &[u8]) -> u64 {
    xxh3_64_with_seed(&[key, value].concat(), 0) % PRIME
}

/// The product modulo [`PRIME`].
fn product(a: u64, b: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(PRIME)) as u64
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
