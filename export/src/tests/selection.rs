//! Which rows and columns a request selects.

use super::fixture::{Answer, Bed, EVENTS, many_activations};
use super::{bed, check_problem};

#[test]
fn types_fields_times_and_zones_are_applied() {
    let bed = bed();
    let check = |more: &str, expected: &str| {
        let answer = bed.get(&format!("{EVENTS}&{more}"));
        assert_eq!((answer.status, answer.is_ended), (200, true));
        assert_eq!(answer.text(), expected, "{more}");
    };
    check("fields=event_id", "event_id\na-1\ne-1\na-2\ne-2\n");
    check("type=effect&fields=spreadid,event_id", "spreadid,event_id\n7,e-1\n0,e-2\n");
    check("type=activation&fields=event_id,pid", "event_id,pid\na-1,1\na-2,1\n");
    // The day in New York begins after the last event.
    check("timezone=America/New_York&fields=pid", "pid\n");
    let check_range = |range: &str, expected: &str| {
        let target = format!("/v1/apps/app-x/events.csv?{range}&fields=event_time,event_id");
        assert_eq!(bed.get(&target).text(), format!("event_time,event_id\n{expected}"));
    };
    check_range(
        "from=2026-03-10T00:02:00Z&to=2026-03-10T08:03:00+08:00",
        "2026-03-10T00:02:00.000Z,e-1\n",
    );
    check_range(
        "from=2026-03-10T08:03&to=2026-03-10&timezone=Asia%2FShanghai",
        "2026-03-10T08:03:00.000+08:00,a-2\n2026-03-10T08:04:00.000+08:00,e-2\n",
    );
    for zone in ["%2B08:00", "+08:00", "%2b0800", "Etc/GMT-8"] {
        check_range(
            &format!("from=2026-03-10T08:04&to=2026-03-10&timezone={zone}"),
            "2026-03-10T08:04:00.000+08:00,e-2\n",
        );
    }
    let wrong = bed.get(&format!("{EVENTS}&timezone=GMT+8"));
    assert!(wrong.status == 400 && wrong.text().contains("for GMT+8 write +08:00"), "{wrong:?}");
    check_range("from=2026-03-10T00:02:00Z&to=2026-03-10T00:02:00Z", "");
    // Meant as an offset, but an unescaped plus makes it a time of day.
    let meant = bed.get("/v1/apps/app-x/events.csv?from=2026-03-10+08:00&to=2026-03-11");
    assert!(meant.status == 400 && meant.text().contains("write %2B for a +"), "{meant:?}");
    let other =
        bed.get("/v1/apps/app%20y/events.csv?from=2026-03-10&to=2026-03-10&fields=app,event_id");
    assert_eq!(other.text(), "app,event_id\napp y,b-1\n");
}

#[test]
fn filters_select_rows() {
    let bed = bed();
    let check = |filters: &str, expected: &[&str]| {
        let answer = bed.get(&format!("{EVENTS}&fields=event_id&{filters}"));
        assert_eq!((answer.status, answer.is_ended), (200, true), "{filters}");
        let lines: Vec<_> = answer.text().lines().skip(1).collect();
        assert_eq!(lines, expected, "{filters}");
    };
    check("status=attributed", &["a-1", "e-1"]);
    check("status=organic,orphan", &["a-2", "e-2"]);
    check("status=organic&status=orphan", &["a-2", "e-2"]);
    check("status=rejected", &[]);
    check("install_type=install", &["a-1", "e-1", "a-2"]);
    check("install_type=reinstall,duplicate", &[]);
    check("spreadid=7", &["a-1", "e-1"]);
    check("spreadid=0,9", &["a-2", "e-2"]);
    check("event_name=purchase,activation", &["a-1", "e-1", "a-2"]);
    check("event_name=Purchase", &[]);
    check("event_name=%22a,%0d%0a%22%22b%22%22%20%C3%BC%22", &["e-2"]);
    check("channel=%22tou,tiao%22", &["a-1", "e-1"]);
    check("channel=unknown", &[]);
    check("type=effect&status=attributed,orphan&spreadid=7", &["e-1"]);
}

#[test]
fn pages_add_up_to_the_whole_export() {
    let bed = Bed::new(many_activations(250));
    let whole = bed.get(&format!("{EVENTS}&fields=event_id")).text().to_owned();
    for limit in [1, 7, 249, 250, 251] {
        let mut pages = bed.pages(&format!("{EVENTS}&fields=event_id&limit={limit}")).into_iter();
        let last = pages.next_back().unwrap();
        let lines = |page: &Answer| page.text().strip_prefix("event_id\n").unwrap().to_owned();
        let mut rows = String::from("event_id\n");
        for page in pages {
            assert_eq!(lines(&page).lines().count(), limit, "only the last page has fewer");
            rows += &lines(&page);
        }
        assert!(lines(&last).lines().count() <= limit, "{limit}");
        assert_eq!(rows + &lines(&last), whole, "{limit}");
    }
}

#[test]
fn a_cursor_is_valid_only_for_its_query() {
    let bed = Bed::new(many_activations(10));
    let first = bed.get(&format!("{EVENTS}&limit=4"));
    let cursor = first.cursor();
    let get = |more: &str| bed.get(&format!("{EVENTS}&after={cursor}{more}"));
    assert_eq!(get("&fields=event_id").text().lines().count(), 7);
    assert_eq!(get("&fields=pid&dialect=excel&limit=2").text().lines().count(), 3);
    for other in ["&status=organic", "&type=activation", "&spreadid=0"] {
        check_problem(&get(other), 400, "bad-parameter", Some("after"));
    }
    let day = "/v1/apps/app-x/events.csv?from=2026-03-10&to=2026-03-11";
    check_problem(&bed.get(&format!("{day}&after={cursor}")), 400, "bad-parameter", Some("after"));
    let app = EVENTS.replace("app-x", "app%20y");
    check_problem(&bed.get(&format!("{app}&after={cursor}")), 400, "bad-parameter", Some("after"));
}
