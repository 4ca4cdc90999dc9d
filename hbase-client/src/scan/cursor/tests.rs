//! The position of a scan after rows, parts of rows and failures.

use super::*;
use crate::wire::cell::{Kind, Parts};

/// Parses `row:qualifiers`, with a `+` at the end if more cells of the row may follow.
fn result(text: &str) -> ScanResult {
    let (text, is_partial) = text.strip_suffix('+').map_or((text, false), |text| (text, true));
    let (row, qualifiers) = text.split_once(':').unwrap_or((text, "q"));
    let cell = |qualifier: char| {
        let qualifier = qualifier.to_string();
        let (row, qualifier) = (row.as_bytes(), qualifier.as_bytes());
        let (family, value, kind) = (&b"f"[..], &b""[..], Kind::Put);
        Parts { row, family, qualifier, timestamp: 1, kind, value }.cell().unwrap()
    };
    ScanResult { cells: qualifiers.chars().map(cell).collect(), is_partial }
}

/// The size of every response in these tests.
const BYTES: usize = 1_000;

fn show(row: &Row) -> String {
    let qualifiers: String = row.cells().iter().map(|cell| cell.qualifier()[0] as char).collect();
    format!("{}:{qualifiers}", row.key().escape_ascii())
}

fn take(cursor: &mut Cursor, results: &[&str]) -> Vec<String> {
    let results = results.iter().map(|text| result(text)).collect();
    cursor.take(&Region::example("", ""), results, BYTES).unwrap().iter().map(show).collect()
}

fn unbounded() -> Cursor {
    Cursor::new(Bytes::new(), Bytes::new(), None)
}

fn start(cursor: &Cursor) -> (String, bool) {
    let Start { row, is_included } = cursor.start();
    (row.escape_ascii().to_string(), *is_included)
}

#[test]
fn scan_resumes_after_the_last_complete_row() {
    let mut cursor = unbounded();
    assert_eq!(take(&mut cursor, &["a", "b:xy"]), ["a:q", "b:xy"]);
    assert_eq!(start(&cursor), ("b".to_owned(), false));
    assert_eq!(cursor.next_row(), "b\0");
    cursor.reset();
    // Repeated rows are not returned again.
    assert_eq!(take(&mut cursor, &["a", "b", "c"]), ["c:q"]);
}

#[test]
fn parts_of_a_row_are_assembled_across_responses() {
    let mut cursor = unbounded();
    assert_eq!(take(&mut cursor, &["a", "b:1+"]), ["a:q"]);
    assert_eq!(start(&cursor), ("a".to_owned(), false));
    assert!(take(&mut cursor, &[]).is_empty());
    assert!(take(&mut cursor, &["b:2+"]).is_empty());
    assert_eq!(take(&mut cursor, &["b:3", "c:1+"]), ["b:123"]);
    // Another row, the end of the region and the end of the scan complete a row as well.
    assert_eq!(take(&mut cursor, &["d:1+"]), ["c:1"]);
    assert_eq!(
        cursor.end_region(&Region::example("", "m")).as_ref().map(show),
        Some("d:1".to_owned())
    );
    assert_eq!(take(&mut cursor, &["n:1+"]), [""; 0]);
    assert_eq!(cursor.finish().as_ref().map(show), Some("n:1".to_owned()));
}

#[test]
fn failure_within_a_row_restarts_that_row() {
    let mut cursor = unbounded();
    assert_eq!(take(&mut cursor, &["a", "b:1+"]), ["a:q"]);
    cursor.reset();
    assert_eq!(start(&cursor), ("a".to_owned(), false));
    assert_eq!(take(&mut cursor, &["b:12"]), ["b:12"]);
}

#[test]
fn next_region_is_read_from_its_first_row() {
    let mut cursor = unbounded();
    assert_eq!(take(&mut cursor, &["a"]), ["a:q"]);
    assert_eq!(cursor.end_region(&Region::example("", "m")), None);
    assert_eq!((start(&cursor), cursor.is_done()), (("m".to_owned(), true), false));
    assert_eq!(take(&mut cursor, &["m"]), ["m:q"]);
    cursor.end_region(&Region::example("m", ""));
    assert!(cursor.is_done());
}

#[test]
fn scan_ends_with_the_region_that_contains_its_stop_row() {
    let check = |stop: &'static str, end: &'static str, is_done| {
        let mut cursor = Cursor::new("a".into(), stop.into(), None);
        cursor.end_region(&Region::example("", end));
        assert_eq!(cursor.is_done(), is_done, "stop {stop:?}, end {end:?}");
    };
    check("m", "m", true);
    check("m", "n", true);
    check("m", "b", false);
    check("m", "", true);
    check("", "m", false);
}

#[test]
fn limit_counts_complete_rows_across_failures() {
    let mut cursor = Cursor::new(Bytes::new(), Bytes::new(), Some(3));
    assert_eq!(take(&mut cursor, &["a", "b", "c:1+"]), ["a:q", "b:q"]);
    cursor.reset();
    assert_eq!((cursor.remaining(), cursor.is_done()), (Some(1), false));
    assert_eq!(take(&mut cursor, &["c:12", "d"]), ["c:12"]);
    assert!(cursor.is_done());
}

#[test]
fn scan_of_an_empty_range_is_done_at_once() {
    assert!(Cursor::new("b".into(), "b".into(), None).is_done());
    assert!(Cursor::new("c".into(), "b".into(), None).is_done());
    assert!(Cursor::new("".into(), "".into(), Some(0)).is_done());
    assert!(!Cursor::new("b".into(), "".into(), None).is_done());
}

#[test]
fn rows_out_of_order_or_of_another_region_are_errors() {
    let mut cursor = unbounded();
    assert!(cursor.take(&Region::example("", ""), vec![result("b"), result("a")], BYTES).is_err());
    let mut cursor = unbounded();
    assert!(cursor.take(&Region::example("", ""), vec![result("b"), result("b")], BYTES).is_err());
    let mut cursor = unbounded();
    assert!(cursor.take(&Region::example("", "m"), vec![result("z")], BYTES).is_err());
}

#[test]
fn failures_between_any_cells_neither_lose_nor_repeat_rows() {
    let rows = ["a:123", "b:1", "c:12", "d:1", "e:1234"];
    for seed in 0..2_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut cursor, mut returned) = (unbounded(), Vec::new());
        while returned.len() < rows.len() {
            let (from, includes) = start(&cursor);
            let rest =
                rows.iter().filter(|row| row[..1] > *from || (includes && row[..1] == *from));
            let mut parts = Vec::new();
            for row in rest {
                let cut = random.usize(2..=row.len());
                if cut > 2 && cut < row.len() {
                    parts.push(format!("{}+", &row[..cut]));
                    parts.push(format!("{}:{}", &row[..1], &row[cut..]));
                } else {
                    parts.push((*row).to_owned());
                }
            }
            // Some parts arrive, in responses of any size, and then the scanner is lost.
            parts.truncate(random.usize(..=parts.len()));
            while !parts.is_empty() {
                let next: Vec<_> = parts.drain(..random.usize(1..=parts.len())).collect();
                returned.extend(take(
                    &mut cursor,
                    &next.iter().map(String::as_str).collect::<Vec<_>>(),
                ));
            }
            cursor.reset();
        }
        assert_eq!(returned, rows, "seed {seed}");
    }
}

#[test]
fn memory_of_an_incomplete_row_includes_all_responses_that_contain_it() {
    let mut cursor = unbounded();
    assert_eq!(take(&mut cursor, &["a", "b:1+"]), ["a:q"]);
    assert_eq!(cursor.oversized_row(BYTES - 1), Some(&b"b"[..]));
    assert_eq!(cursor.oversized_row(2 * BYTES), None);
    for qualifiers in ["b:2+", "b:3+"] {
        take(&mut cursor, &[qualifiers]);
    }
    assert_eq!(cursor.oversized_row(3 * BYTES), Some(&b"b"[..]), "its cells take memory too");
    // The count is reset when another row starts, the scanner is lost, or the row ends.
    take(&mut cursor, &["c:1+"]);
    assert_eq!(cursor.oversized_row(2 * BYTES), None);
    assert_eq!(cursor.oversized_row(BYTES), Some(&b"c"[..]));
    cursor.reset();
    assert_eq!(cursor.oversized_row(0), None);
    take(&mut cursor, &["c:1+"]);
    take(&mut cursor, &["c:2"]);
    assert_eq!(cursor.oversized_row(0), None);
}
