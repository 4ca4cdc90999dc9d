//! A bar chart of rows by day and channel. The server renders it as SVG, without a script, and the numbers are in a
//! table next to it.

use std::collections::HashMap;

use serde::Serialize;

use crate::api::summary::DayCount;
use crate::page::format;

/// Channels with a colour of their own; the others share one.
const CHANNELS_MAX: usize = 5;
const BARS_MAX: i64 = 92;
/// Days per bar, the smallest that gives at most [`BARS_MAX`] bars.
const DAYS_PER_BAR: [i64; 5] = [1, 7, 28, 91, 364];
/// Height of the drawing in its own units; the page scales it.
const HEIGHT: f64 = 100.0;
const BAR_WIDTH: usize = 10;
/// The colour of rows without a channel.
const PLAIN: &str = "none";
const REST: &str = "rest";

#[derive(Debug, Serialize)]
pub(crate) struct Chart {
    width: usize,
    title: String,
    bars: Vec<Bar>,
    series: Vec<Series>,
    /// Labels of the grid lines, from the top.
    scale: [String; 3],
    /// Below the first, the middle and the last bar.
    labels: Vec<String>,
    days_per_bar: i64,
}

#[derive(Debug, Serialize)]
struct Series {
    name: String,
    colour: String,
    rows: u64,
}

#[derive(Debug, Serialize)]
struct Bar {
    name: String,
    x: usize,
    rows: u64,
    parts: Vec<Part>,
    /// Rows by series, for the table.
    counts: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Part {
    colour: String,
    y: String,
    height: String,
}

/// Returns the chart of the days from `first` to `last`, counted since 1970-01-01; `None` without rows.
pub(crate) fn chart(counts: &[DayCount], first: i64, last: i64) -> Option<Chart> {
    let total: u64 = counts.iter().map(|count| count.rows).sum();
    if total == 0 {
        return None;
    }
    let days = |pick: fn(i64, i64) -> i64| counts.iter().map(|count| count.day).reduce(pick);
    let is_long = last - first >= BARS_MAX;
    let first = if is_long { days(i64::min).unwrap_or(first) } else { first };
    let last = if is_long { days(i64::max).unwrap_or(last) } else { last };
    let len = last - first + 1;
    let fits = |days: &&i64| bars_of(len, **days) <= BARS_MAX;
    let days_per_bar = DAYS_PER_BAR.iter().find(fits).copied();
    let days_per_bar = days_per_bar.unwrap_or_else(|| bars_of(len, BARS_MAX));
    let (series, indexes) = series(counts);
    let bars = usize::try_from(bars_of(len, days_per_bar)).ok()?;
    let mut rows = vec![vec![0; series.len()]; bars];
    for count in counts {
        let bar = usize::try_from((count.day - first).max(0) / days_per_bar).ok()?;
        let index = indexes.get(&*count.channel).copied().unwrap_or(series.len() - 1);
        rows.get_mut(bar).into_iter().for_each(|counts| counts[index] += count.rows);
    }
    let most = rows.iter().map(|counts| counts.iter().sum()).max().unwrap_or(0);
    let top = round_up(most);
    let name = |bar: usize| {
        let start = first + bar as i64 * days_per_bar;
        format::days(format::day(start), format::day((start + days_per_bar - 1).min(last)))
    };
    let drawn = |(index, counts)| Bar::new(index, name(index), counts, &series, top);
    let drawn: Vec<Bar> = rows.into_iter().enumerate().map(drawn).collect();
    let labelled: &[usize] = match bars {
        1 => &[0],
        2 => &[0, 1],
        _ => &[0, bars / 2, bars - 1],
    };
    Some(Chart {
        width: bars * BAR_WIDTH,
        title: format!("{} by day and channel", format::rows(total)),
        labels: labelled
            .iter()
            .map(|bar| format::date(format::day(first + *bar as i64 * days_per_bar)))
            .collect(),
        scale: [top, top / 2, 0].map(format::number),
        bars: drawn,
        series,
        days_per_bar,
    })
}

/// Returns the number of bars for all days; neither argument is negative.
fn bars_of(days: i64, days_per_bar: i64) -> i64 {
    (days + days_per_bar - 1) / days_per_bar
}

/// Returns the series (the largest channels, then all others together, then rows without a channel), and the index of
/// each channel's series.
fn series(counts: &[DayCount]) -> (Vec<Series>, HashMap<&str, usize>) {
    let mut totals: HashMap<&str, u64> = HashMap::new();
    for count in counts {
        *totals.entry(&count.channel).or_default() += count.rows;
    }
    let plain = totals.remove("");
    let mut channels: Vec<(&str, u64)> = totals.into_iter().collect();
    channels.sort_unstable_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
    let rest = channels.split_off(channels.len().min(CHANNELS_MAX));
    let mut indexes = HashMap::new();
    let mut series = Vec::new();
    for (index, (name, rows)) in channels.into_iter().enumerate() {
        indexes.insert(name, index);
        series.push(Series { name: name.into(), colour: format!("c{index}"), rows });
    }
    if !rest.is_empty() {
        let rows = rest.iter().map(|(_, rows)| rows).sum();
        indexes.extend(rest.iter().map(|(name, _)| (*name, series.len())));
        let name = format!("{} other channels", rest.len());
        series.push(Series { name, colour: REST.into(), rows });
    }
    if let Some(rows) = plain {
        indexes.insert("", series.len());
        series.push(Series { name: "no channel".into(), colour: PLAIN.into(), rows });
    }
    (series, indexes)
}

impl Bar {
    fn new(index: usize, name: String, counts: Vec<u64>, series: &[Series], top: u64) -> Self {
        let height_of = |rows: u64| rows as f64 / top.max(1) as f64 * HEIGHT;
        let mut below = 0;
        let mut parts = Vec::new();
        for (rows, series) in counts.iter().zip(series) {
            below += rows;
            if *rows > 0 {
                parts.push(Part {
                    colour: series.colour.clone(),
                    y: format!("{:.2}", HEIGHT - height_of(below)),
                    height: format!("{:.2}", height_of(*rows)),
                });
            }
        }
        Self { name, x: index * BAR_WIDTH, rows: below, parts, counts }
    }
}

/// Rounds up to 2, 4, 6 or 10 times a power of ten, so that its half is a whole number, too.
fn round_up(most: u64) -> u64 {
    let mut power = 1_u64;
    while power.saturating_mul(10) < most {
        power = power.saturating_mul(10);
    }
    let found = [2, 4, 6, 10].into_iter().map(|times| power.saturating_mul(times));
    found.into_iter().find(|top| *top >= most).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(day: i64, channel: &str, rows: u64) -> DayCount {
        DayCount { day, channel: channel.into(), rows }
    }

    #[test]
    fn the_top_is_a_round_number() {
        let check = |most, expected| assert_eq!(round_up(most), expected, "{most}");
        check(1, 2);
        check(5, 6);
        check(7, 10);
        check(10, 10);
        check(11, 20);
        check(61, 100);
        check(1_204, 2_000);
        assert!(round_up(u64::MAX) == u64::MAX);
    }

    #[test]
    fn the_largest_channels_have_colours() {
        let mut counts: Vec<_> = (0..8).map(|n| count(20_000, &format!("c{n}"), 10 - n)).collect();
        counts.push(count(20_001, "", 3));
        let chart = chart(&counts, 20_000, 20_001).unwrap();
        let names: Vec<_> = chart.series.iter().map(|series| &*series.name).collect();
        assert_eq!(names, ["c0", "c1", "c2", "c3", "c4", "3 other channels", "no channel"]);
        let rows: Vec<_> = chart.series.iter().map(|series| series.rows).collect();
        assert_eq!(rows, [10, 9, 8, 7, 6, 5 + 4 + 3, 3]);
        assert_eq!(chart.bars[0].counts, [10, 9, 8, 7, 6, 12, 0]);
        assert_eq!((chart.bars[1].rows, chart.bars[1].parts.len()), (3, 1));
        let bottom = &chart.bars[0].parts[0];
        assert_eq!((&*bottom.y, &*bottom.height), ("83.33", "16.67"));
    }

    #[test]
    fn many_days_share_a_bar() {
        let check = |days: i64, bars, days_per_bar| {
            let counts = [count(0, "a", 1), count(days - 1, "b", 2)];
            let chart = chart(&counts, 0, days - 1).unwrap();
            assert_eq!((chart.bars.len(), chart.days_per_bar), (bars, days_per_bar), "{days}");
            assert_eq!(chart.bars.iter().map(|bar| bar.rows).sum::<u64>(), 3);
        };
        check(1, 1, 1);
        check(92, 92, 1);
        check(93, 14, 7);
        check(645, 24, 28);
        check(2_900_000, 92, 31_522);
    }

    #[test]
    fn a_long_range_begins_with_its_first_row() {
        let counts = [count(20_000, "a", 1), count(20_003, "a", 1)];
        let drawn = chart(&counts, 0, 1_000_000).unwrap();
        assert_eq!(drawn.labels, ["4 Oct 2024", "6 Oct 2024", "7 Oct 2024"]);
        assert!(chart(&[], 0, 1).is_none());
    }
}
