//! The groups of a summary, and how they are serialized.

use std::collections::{BTreeMap, HashMap};

use attribution::rules::policy::Policy;
use serde::ser::{Serialize, SerializeMap, Serializer};
use store::layout::decimal_sum::Amount;
use store::layout::summary_counts::{SummaryKey, Totals};

use super::DayCount;
use super::dimension::{Dimension, Value};
use crate::ExportError;
use crate::format::csv::cell::write_text;
use crate::format::time::writer::{date, in_utc};
use crate::query::ExportQuery;
use crate::query::parameter::{BY, bad};

/// All groups are in memory until the response is sent.
pub(super) const GROUPS_MAX: usize = 100_000;

/// Rows grouped by the dimensions of a query.
pub(super) struct Groups<'q> {
    by: &'q [Dimension],
    policy: &'q Policy,
    groups: HashMap<Vec<Value>, Group>,
    /// Pairs of group and currency.
    len: usize,
}

/// Totals by currency.
type Group = BTreeMap<Box<str>, Totals>;

impl<'q> Groups<'q> {
    pub fn new(by: &'q [Dimension], policy: &'q Policy) -> Self {
        // Without dimensions there is exactly one group, even if it is empty.
        let mut groups = HashMap::new();
        if by.is_empty() {
            groups.insert(Vec::new(), Group::new());
        }
        Self { by, policy, groups, len: 0 }
    }

    /// Adds a count to its group.
    ///
    /// # Errors
    /// There are more than [`GROUPS_MAX`] groups.
    pub fn add(
        &mut self,
        day: i64,
        counted: &SummaryKey<'_>,
        count: &Totals,
    ) -> Result<(), ExportError> {
        let values = self.by.iter().map(|by| by.of(day, counted, self.policy)).collect();
        let group = self.groups.entry(values).or_default();
        match group.get_mut(counted.what.currency) {
            Some(sum) => sum.add(count),
            None => {
                group.insert(counted.what.currency.into(), *count);
                self.len += 1;
            }
        }
        if self.len <= GROUPS_MAX {
            return Ok(());
        }
        let names: Vec<_> = self.by.iter().map(|by| by.name()).collect();
        let problem =
            format!("more than {GROUPS_MAX} groups; shorten the range, or use fewer dimensions");
        Err(bad(BY, problem, &names.join(","), Dimension::names().collect()))
    }

    /// Returns the number of all rows.
    pub fn rows(&self) -> u64 {
        let counts = self.groups.values().flat_map(BTreeMap::values);
        counts.map(|count| count.rows.max(0).unsigned_abs()).sum()
    }

    /// Returns the counts of a summary by day and one text dimension, in no order.
    pub fn by_day_and_text(&self) -> Vec<DayCount> {
        let count = |(values, group): (&Vec<Value>, &Group)| match &values[..] {
            [Value::Day(day), Value::Text(text)] => {
                let rows = group.values().map(|count| count.rows.max(0).unsigned_abs()).sum();
                Some(DayCount { day: *day, channel: text.clone(), rows })
            }
            _ => None,
        };
        self.groups.iter().filter_map(count).collect()
    }

    fn sorted(&self) -> Vec<(&[Value], &Group)> {
        let groups = self.groups.iter().map(|(values, group)| (values.as_slice(), group));
        let mut groups: Vec<_> = groups.collect();
        groups.sort_unstable_by_key(|(values, _)| *values);
        groups
    }

    /// Writes a line for each group and currency: its dimensions, currency, rows, revenue.
    pub fn write_csv(&self, out: &mut Vec<u8>) {
        for by in self.by {
            out.extend_from_slice(by.name().as_bytes());
            out.push(b',');
        }
        out.extend_from_slice(b"currency,count,revenue\n");
        for (values, group) in self.sorted() {
            let nothing = (Box::default(), Totals::default());
            let is_empty = group.is_empty();
            let empty = is_empty.then_some((&nothing.0, &nothing.1));
            for (currency, count) in group.iter().chain(empty) {
                for value in values {
                    value.write(out);
                    out.push(b',');
                }
                write_text(currency, out);
                let figures = format!(",{},{}\n", count.rows, count.revenue);
                out.extend_from_slice(figures.as_bytes());
            }
        }
    }

    /// Writes one document: the query, then the groups.
    pub fn write_json(&self, app_key: &str, query: &ExportQuery, out: &mut Vec<u8>) {
        let line = |(values, group)| Line { by: self.by, values, group };
        let document = Document {
            app: app_key,
            from: in_utc(query.from),
            to: in_utc(query.to),
            timezone: query.zone.name(),
            by: self.by.iter().map(|by| by.name()).collect(),
            groups: self.sorted().into_iter().map(line).collect(),
        };
        // Cannot fail: keys are strings, and it writes to memory.
        let _ = serde_json::to_writer(out, &document);
    }
}

impl Value {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Day(day) => out.extend_from_slice(date(*day).to_string().as_bytes()),
            Self::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Self::Name(name) => out.extend_from_slice(name.as_bytes()),
            Self::Text(text) => write_text(text, out),
        }
    }
}

impl Serialize for Value {
    /// A missing value is `null`.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Day(day) => to.serialize_str(&date(*day).to_string()),
            Self::Number(number) => to.serialize_u32(*number),
            Self::Name("") => to.serialize_none(),
            Self::Name(name) => to.serialize_str(name),
            Self::Text(text) if text.is_empty() => to.serialize_none(),
            Self::Text(text) => to.serialize_str(text),
        }
    }
}

#[derive(serde::Serialize)]
struct Document<'a> {
    app: &'a str,
    from: String,
    to: String,
    timezone: &'a str,
    by: Vec<&'static str>,
    groups: Vec<Line<'a>>,
}

/// A group as an object: its dimensions, then its rows and revenue.
struct Line<'a> {
    by: &'a [Dimension],
    values: &'a [Value],
    group: &'a Group,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut line = to.serialize_map(None)?;
        for (by, value) in self.by.iter().zip(self.values) {
            line.serialize_entry(by.name(), value)?;
        }
        line.serialize_entry("count", &self.group.values().map(|count| count.rows).sum::<i64>())?;
        line.serialize_entry("revenue", &Revenue(self.group))?;
        line.end()
    }
}

/// Amounts by currency, as strings, so that no reader rounds them.
struct Revenue<'a>(&'a Group);

impl Serialize for Revenue<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // An amount without a currency is written only if it is not 0.
        let sums = self.0.iter().map(|(currency, count)| (currency, count.revenue));
        let sums = sums.filter(|(currency, sum)| !currency.is_empty() || *sum != Amount::default());
        to.collect_map(sums.map(|(currency, sum)| (currency, sum.to_string())))
    }
}
