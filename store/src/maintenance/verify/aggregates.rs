//! Checks that the summary counts and the campaign index match the rows.
//!
//! Rows are in another order than their aggregates. So both are reduced to a sum per app that does not depend on the
//! order, and the sums are compared. Each entry adds a hash, so different entries give different sums.

use std::collections::BTreeMap;

use attribution::facts::event::Pid;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::findings::Findings;
use super::report::{Check, Problem, at};
use super::snapshot::Snapshot;
use super::table_scan::scan_table;
use crate::StoreError;
use crate::embedded::open::column_families::{CAMPAIGN_INDEX, COUNTS};
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

/// Checks the aggregates; `sums` are those of all rows.
pub fn check_aggregates(
    snapshot: &Snapshot<'_>,
    mut sums: AggregateSums,
    findings: &mut Findings<'_>,
) -> Result<(), StoreError> {
    scan_table(snapshot, findings, Check::Counts, COUNTS, |findings, chunk| {
        findings.report.add_checked(Check::Counts, chunk.len());
        for (key, value) in chunk {
            let Some((count_key, count)) = SummaryKey::decode(key).zip(Totals::decode(value))
            else {
                findings.add_count(Problem::CountUnreadable, || at(COUNTS, key));
                continue;
            };
            if !snapshot.is_past_retention(count_key.pid, count_key.time) {
                add(&mut sums.counts, count_key.pid, PRIME - hash_of_count(key, &count));
            }
        }
        Ok(())
    })?;
    scan_table(snapshot, findings, Check::Counts, CAMPAIGN_INDEX, |findings, chunk| {
        findings.report.add_checked(Check::Counts, chunk.len());
        for (key, value) in chunk {
            let Some(row) = aggregates::decode(key, value) else {
                findings.add_count(Problem::CampaignEntryUnreadable, || at(CAMPAIGN_INDEX, key));
                continue;
            };
            if !snapshot.is_past_retention(row.pid, row.event_time) {
                add(&mut sums.credited, row.pid, PRIME - hash_of_credited(key, value));
            }
        }
        Ok(())
    })?;
    for (problem, sums) in
        [(Problem::CountDiffers, sums.counts), (Problem::CampaignIndexDiffers, sums.credited)]
    {
        for (pid, _) in sums.into_iter().filter(|(_, sum)| *sum != 0) {
            findings.add_count(problem, || snapshot.app_name(pid));
        }
    }
    Ok(())
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
