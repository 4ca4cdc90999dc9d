use super::*;
use crate::wire::cell::{Kind, Parts};

fn region(start: &'static str, end: &'static str) -> Region {
    let server = "h:1".parse().unwrap();
    Region { name: "r".into(), id: 1, start: start.into(), end: end.into(), server }
}

/// `row:qualifier…`; with `+` at the end more may follow.
fn result(text: &str) -> (Vec<Cell>, bool) {
    let (text, is_partial) = text.strip_suffix('+').map_or((text, false), |text| (text, true));
    let (row, qualifiers) = text.split_once(':').unwrap_or((text, "q"));
    let cell = |qualifier: char| {
        let qualifier = qualifier.to_string();
        let (row, qualifier) = (row.as_bytes(), qualifier.as_bytes());
        let (family, value, kind) = (&b"f"[..], &b""[..], Kind::Put);
        Cell::from_parts(&Parts { row, family, qualifier, timestamp: 1, kind, value }, 4).unwrap()
    };
    (qualifiers.chars().map(cell).collect(), is_partial)
}

/// Of every answer here.
const BYTES: usize = 1_000;

fn show(row: &Row) -> String {
    let qualifiers: String = row.cells().iter().map(|cell| cell.qualifier()[0] as char).collect();
    format!("{}:{qualifiers}", row.key().escape_ascii())
}

fn take(place: &mut Cursor, results: &[&str]) -> Vec<String> {
    let results = results.iter().map(|text| result(text)).collect();
    place.take(&region("", ""), results, BYTES).unwrap().iter().map(show).collect()
}

fn whole() -> Cursor {
    Cursor::new(Bytes::new(), Bytes::new(), None)
}

fn start(place: &Cursor) -> (String, bool) {
    let (row, includes) = place.start();
    (row.escape_ascii().to_string(), includes)
}

#[test]
fn scan_goes_on_after_the_last_complete_row() {
    let mut place = whole();
    assert_eq!(take(&mut place, &["a", "b:xy"]), ["a:q", "b:xy"]);
    assert_eq!(start(&place), ("b".to_owned(), false));
    assert_eq!(place.next_row(), "b\0");
    place.reset();
    // What comes once more is not given out once more.
    assert_eq!(take(&mut place, &["a", "b", "c"]), ["c:q"]);
}

#[test]
fn parts_of_a_row_are_put_together_over_answers() {
    let mut place = whole();
    assert_eq!(take(&mut place, &["a", "b:1+"]), ["a:q"]);
    assert_eq!(start(&place), ("a".to_owned(), false));
    assert!(take(&mut place, &[]).is_empty());
    assert!(take(&mut place, &["b:2+"]).is_empty());
    assert_eq!(take(&mut place, &["b:3", "c:1+"]), ["b:123"]);
    // Another row, the region's end and the end of all complete it as well.
    assert_eq!(take(&mut place, &["d:1+"]), ["c:1"]);
    assert_eq!(place.end_region(&region("", "m")).as_ref().map(show), Some("d:1".to_owned()));
    assert_eq!(take(&mut place, &["n:1+"]), [""; 0]);
    assert_eq!(place.end().as_ref().map(show), Some("n:1".to_owned()));
}

#[test]
fn fault_in_a_row_begins_that_row_again() {
    let mut place = whole();
    assert_eq!(take(&mut place, &["a", "b:1+"]), ["a:q"]);
    place.reset();
    assert_eq!(start(&place), ("a".to_owned(), false));
    assert_eq!(take(&mut place, &["b:12"]), ["b:12"]);
}

#[test]
fn next_region_begins_with_its_first_row() {
    let mut place = whole();
    assert_eq!(take(&mut place, &["a"]), ["a:q"]);
    assert_eq!(place.end_region(&region("", "m")), None);
    assert_eq!((start(&place), place.is_done()), (("m".to_owned(), true), false));
    assert_eq!(take(&mut place, &["m"]), ["m:q"]);
    place.end_region(&region("m", ""));
    assert!(place.is_done());
}

#[test]
fn scan_ends_with_the_region_that_has_its_stop() {
    let check = |stop: &'static str, end: &'static str, is_done| {
        let mut place = Cursor::new("a".into(), stop.into(), None);
        place.end_region(&region("", end));
        assert_eq!(place.is_done(), is_done, "stop {stop:?}, end {end:?}");
    };
    check("m", "m", true);
    check("m", "n", true);
    check("m", "b", false);
    check("m", "", true);
    check("", "m", false);
}

#[test]
fn limit_counts_complete_rows_over_faults() {
    let mut place = Cursor::new(Bytes::new(), Bytes::new(), Some(3));
    assert_eq!(take(&mut place, &["a", "b", "c:1+"]), ["a:q", "b:q"]);
    place.reset();
    assert_eq!((place.remaining(), place.is_done()), (Some(1), false));
    assert_eq!(take(&mut place, &["c:12", "d"]), ["c:12"]);
    assert!(place.is_done());
}

#[test]
fn nothing_is_asked_for_where_nothing_can_be() {
    assert!(Cursor::new("b".into(), "b".into(), None).is_done());
    assert!(Cursor::new("c".into(), "b".into(), None).is_done());
    assert!(Cursor::new("".into(), "".into(), Some(0)).is_done());
    assert!(!Cursor::new("b".into(), "".into(), None).is_done());
}

#[test]
fn rows_out_of_order_or_of_another_region_are_errors() {
    let mut place = whole();
    assert!(place.take(&region("", ""), vec![result("b"), result("a")], BYTES).is_err());
    let mut place = whole();
    assert!(place.take(&region("", ""), vec![result("b"), result("b")], BYTES).is_err());
    let mut place = whole();
    assert!(place.take(&region("", "m"), vec![result("z")], BYTES).is_err());
}

/// Whatever is cut where, all rows come once.
#[test]
fn faults_anywhere_lose_and_repeat_nothing() {
    let rows = ["a:123", "b:1", "c:12", "d:1", "e:1234"];
    for seed in 0..2_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut place, mut given) = (whole(), Vec::new());
        while given.len() < rows.len() {
            let (from, includes) = start(&place);
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
            // Some of it comes, in answers of any size, and then the scanner is gone.
            parts.truncate(random.usize(..=parts.len()));
            while !parts.is_empty() {
                let next: Vec<_> = parts.drain(..random.usize(1..=parts.len())).collect();
                given
                    .extend(take(&mut place, &next.iter().map(String::as_str).collect::<Vec<_>>()));
            }
            place.reset();
        }
        assert_eq!(given, rows, "seed {seed}");
    }
}

#[test]
fn row_that_does_not_end_is_as_long_as_the_answers_that_it_is_in() {
    let mut place = whole();
    assert_eq!(take(&mut place, &["a", "b:1+"]), ["a:q"]);
    assert_eq!(place.longer_than(BYTES - 1), Some(&b"b"[..]));
    assert_eq!(place.longer_than(2 * BYTES), None);
    for qualifiers in ["b:2+", "b:3+"] {
        take(&mut place, &[qualifiers]);
    }
    assert_eq!(place.longer_than(3 * BYTES), Some(&b"b"[..]), "and what its cells take themselves");
    // Another one begins, this one comes once more, or it ends.
    take(&mut place, &["c:1+"]);
    assert_eq!(place.longer_than(2 * BYTES), None);
    assert_eq!(place.longer_than(BYTES), Some(&b"c"[..]));
    place.reset();
    assert_eq!(place.longer_than(0), None);
    take(&mut place, &["c:1+"]);
    take(&mut place, &["c:2"]);
    assert_eq!(place.longer_than(0), None);
}
