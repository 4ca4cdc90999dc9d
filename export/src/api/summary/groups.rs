//! The groups of a summary.

use std::collections::HashMap;

use attribution::rules::policy::Policy;
use store::layout::summary_counts::{SummaryKey, Totals};

use super::DayCount;
use super::dimension::{Dimension, Texts, Value};
use super::lines::{GroupKey, Lines};
use crate::ExportError;
use crate::query::parameter::{BY, bad};

/// Maximum number of groups, each currency counted; they are in memory until the response is sent.
pub(super) const GROUPS_MAX: usize = 100_000;
/// Maximum size of the different names and currencies together.
pub(super) const TEXTS_BYTES_MAX: usize = 8 << 20;

/// Rows grouped by the dimensions of a query.
pub(super) struct Groups<'q> {
    by: &'q [Dimension],
    policy: &'q Policy,
    sums: HashMap<GroupKey, Totals>,
    texts: Texts,
}

impl<'q> Groups<'q> {
    pub fn new(by: &'q [Dimension], policy: &'q Policy) -> Self {
        Self { by, policy, sums: HashMap::new(), texts: Texts::default() }
    }

    /// Adds a count to its group.
    ///
    /// # Errors
    /// There are more than [`GROUPS_MAX`] groups, or they have more than [`TEXTS_BYTES_MAX`] bytes of names.
    pub fn add(
        &mut self,
        day: i64,
        counted: &SummaryKey<'_>,
        count: &Totals,
    ) -> Result<(), ExportError> {
        let (by, policy, texts) = (self.by, self.policy, &mut self.texts);
        let values = by.iter().map(|by| by.of(day, counted, policy, texts)).collect();
        let currency = texts.get(counted.what.currency);
        self.sums.entry(GroupKey { values, currency }).or_default().add(count);
        let excess = if self.sums.len() > GROUPS_MAX {
            format!("more than {GROUPS_MAX} groups")
        } else if self.texts.bytes() > TEXTS_BYTES_MAX {
            format!("names of more than {TEXTS_BYTES_MAX} bytes")
        } else {
            return Ok(());
        };
        let names: Vec<_> = by.iter().map(|by| by.name()).collect();
        let problem = format!("{excess}; shorten the range, or use fewer dimensions");
        Err(bad(BY, problem, &names.join(","), Dimension::names().collect()))
    }

    /// Returns the number of all rows.
    pub fn rows(&self) -> u64 {
        self.sums.values().map(rows).sum()
    }

    /// Returns the counts of a summary by day and one text dimension, in no order, those of each currency apart.
    pub fn by_day_and_text(&self) -> Vec<DayCount> {
        let count = |(key, sum): (&GroupKey, &Totals)| match &key.values[..] {
            [Value::Day(day), Value::Text(text)] => {
                Some(DayCount { day: *day, channel: (&**text).into(), rows: rows(sum) })
            }
            _ => None,
        };
        self.sums.iter().filter_map(count).collect()
    }

    /// Returns the groups in the order of a response.
    pub fn into_lines(self) -> Lines {
        let mut sums: Vec<_> = self.sums.into_iter().collect();
        sums.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        // Without dimensions there is exactly one group, even if it is empty.
        if self.by.is_empty() && sums.is_empty() {
            sums.push(Default::default());
        }
        Lines::new(self.by, sums)
    }
}

fn rows(sum: &Totals) -> u64 {
    sum.rows.max(0).unsigned_abs()
}
