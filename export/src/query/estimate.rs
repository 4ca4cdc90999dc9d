//! About how many rows an export will have, without reading them.

use std::ops::ControlFlow;

use attribution::facts::event::EventTime;
use attribution::rules::policy::{AppPolicy, Policy};
use store::layout::summary_counts::{QUARTER_MS, quarter_start};
use store::reader::Reader;

use crate::ExportError;
use crate::query::ExportQuery;

/// From the counts of quarters of an hour; one that is only partly in the range counts by that part. `None`
/// where nothing is counted, in a store that processes share.
///
/// # Errors
/// The store's.
pub fn expected_rows(
    reader: &Reader,
    app: &AppPolicy,
    query: &ExportQuery,
    policy: &Policy,
) -> Result<Option<u64>, ExportError> {
    let from =
        query.after.map_or(query.from, |cursor| cursor.row(app.pid).event_time.max(query.from));
    let Some(last) = query.to.since(from).filter(|length| *length > 0).map(|_| query.to.minus(1))
    else {
        return Ok(Some(0));
    };
    let end = quarter_start(last).plus(QUARTER_MS);
    let end = if end == EventTime::MAX { EventTime::END } else { end };
    let (mut rows, view) = (0.0, reader.view());
    if !view.has_counts() {
        return Ok(None);
    }
    view.counts(app.pid, (quarter_start(from), end), |counted, count| {
        if query.filter.has_counted(counted, policy) {
            let start = quarter_start(counted.time);
            let late = from.since(start).unwrap_or(0);
            let kept = query.to.since(start).unwrap_or(0).min(QUARTER_MS).saturating_sub(late);
            rows += count.rows as f64 * kept as f64 / QUARTER_MS as f64;
        }
        ControlFlow::Continue(())
    })?;
    Ok(Some((rows.round() as u64).min(query.limit.unwrap_or(u64::MAX))))
}

#[cfg(test)]
mod tests {
    use attribution::facts::event::Pid;

    use super::*;
    use crate::Format;
    use crate::tests::bed::{self, many_activations};

    #[test]
    fn rows_are_counted_without_reading_them() {
        let dir = tempfile::tempdir().unwrap();
        let config = bed::settings(dir.path());
        let reader = bed::fill(&config, many_activations(7_200));
        let app = config.policy.app(Pid(1)).unwrap();
        let check = |from, to, more: &[(&str, &str)], expected| {
            let range = [("from", from), ("to", to)];
            let query = ExportQuery::parse(Format::Csv, range.iter().chain(more).copied()).unwrap();
            let rows = expected_rows(&reader, app, &query, &config.policy).unwrap();
            assert_eq!(rows, Some(expected), "{from} {to} {more:?}");
        };
        let (day, two) = ("2026-03-10", "2026-03-10T02:00");
        check(day, day, &[], 7_200);
        check("1970-01-01", "9999-12-30", &[], 7_200);
        check(day, "2026-03-10T01:00", &[], 3_600);
        check("2026-03-10T00:05", "2026-03-10T00:10", &[], 300);
        check("2026-03-10T01:50", two, &[], 600);
        check(day, day, &[("limit", "5")], 5);
        check(day, day, &[("status", "organic")], 7_200);
        check(day, day, &[("type", "effect")], 0);
        check(two, two, &[], 0);
        check("2026-03-11", "2026-03-12", &[], 0);
    }
}
