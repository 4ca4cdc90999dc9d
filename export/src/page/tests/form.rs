//! The form of an export, its preview and its download.

use attribution::facts::event::{Fact, Pid};
use attribution::rules::policy::{AppPolicy, Policy};
use jiff::civil::date;

use super::{DAYS, has, link, page};
use crate::page::export_form::state::{Choice, FieldError, dates};
use crate::page::format;
use crate::tests::fixture::{Bed, DAY, MINUTE, activation, at, effect, many_activations};

#[test]
fn rows_and_bytes_are_shown_before_a_download() {
    let bed = Bed::new(many_activations(50));
    for form in ["excel", "csv", "ndjson"] {
        let answer = page(&bed, &format!("/?{DAYS}&form={form}"));
        let file = bed.get(&link(&answer)).body.len() as u64;
        has(&answer, &["50 rows", &format!("<span>{}</span>", format::size(file))]);
        has(&answer, &["All 50 rows", "10 Mar 2026", "a-49"]);
    }
    let answer =
        page(&Bed::new(many_activations(1_204)), &format!("/?{DAYS}&preset=own&fields=event_id"));
    has(&answer, &["1,204 rows", "about 8.2 kB", "The first 50 rows", "1 column", "a-49"]);
    assert!(!answer.text().contains("a-50<"));
}

#[test]
fn the_download_button_redirects_to_the_export() {
    let bed = Bed::new(many_activations(3));
    let check = |form: &str, expected: &str| {
        let answer = page(&bed, &format!("/download?{form}"));
        assert_eq!((answer.status, answer.header("location")), (303, Some(expected)), "{form}");
        assert_eq!(bed.get(expected).status, 200, "{expected}");
    };
    check(
        &format!(
            "app=app-x&{DAYS}&timezone=Asia%2FShanghai&type=all&form=excel&preset=native&fields=app&channel=&spreadid="
        ),
        "/v1/apps/app-x/events.csv?from=2026-03-10&to=2026-03-10&timezone=Asia%2FShanghai&dialect=excel",
    );
    check(
        &format!(
            "app=app+y&{DAYS}&type=effect&form=ndjson&preset=own&fields=app&fields=props.a,%22props.b,c%22&fields=\
             &event_name=a,+b&status=organic&export_id=f000000000000001"
        ),
        "/v1/apps/app%20y/events.ndjson?from=2026-03-10&to=2026-03-10&timezone=UTC&type=effect\
         &event_name=a%2Cb&status=organic&fields=app%2Cprops.a%2C%22props.b%2Cc%22\
         &export_id=f000000000000001",
    );
    let refused = page(&bed, &format!("/download?{DAYS}&timezone=Mars"));
    assert_eq!(refused.status, 400);
    has(&refused, &["aria-invalid", "value=\"Mars\"", "the nearest is"]);
}

#[test]
fn every_invalid_field_is_reported_and_keeps_its_value() {
    let bed = Bed::new(vec![]);
    let target = "/?app=app-z&range=custom&from=2026-03-10&to=2026-03-09&timezone=Berlin&type=x&form=y\
                  &preset=own&fields=evnt_time&channel=nowhere&spreadid=-1&status=lost&install_type=z";
    let answer = page(&bed, target);
    assert_eq!(answer.status, 400);
    let fields =
        ["app", "to", "timezone", "type", "form", "fields", "spreadid", "status", "install_type"];
    for field in fields {
        has(&answer, &[&format!("id=\"{field}-wrong\"")]);
    }
    has(
        &answer,
        &["Europe&#x2f;Berlin", "event_time", "value=\"-1\"", "value=\"Berlin\"", "value=\"lost\""],
    );
    has(&answer, &["<option value=\"app-z\" selected>", "This day is before the first one."]);
    let answer = page(&bed, "/?range=custom&from=&to=&channel=nowhere");
    has(&answer, &["from-wrong", "channel-wrong", "the nearest is"]);
}

#[test]
fn a_preview_shows_the_cells_of_the_file() {
    let name = "=\"007\"";
    let facts = vec![
        Fact::Activation(activation("00123", "mine", DAY)),
        Fact::Effect(effect("e", name, "mine", DAY + MINUTE)),
    ];
    let bed = Bed::new(facts);
    let of = |form: &str| {
        page(&bed, &format!("/?{DAYS}&preset=own&fields=event_id,event_name&form={form}"))
    };
    for form in ["csv", "ndjson"] {
        has(&of(form), &["<td>00123</td>", "<td>=&quot;007&quot;</td>"]);
    }
    // In the file the first cell is `="00123"`, and the other one begins with an apostrophe.
    has(&of("excel"), &["<td>00123</td>", "=&quot;007&quot;</td>"]);
}

#[test]
fn a_request_converts_to_a_choice_of_the_form() {
    let request = "/v1/apps/a%26b/events.ndjson?from=2026-03-10T08%3A00&to=2026-03-11&type=effect\
                   &channel=%22a,b%22&channel=c&fields=app,%22props.x,y%22&export_id=1";
    let choice = Choice::of_request("a&b", request).unwrap();
    let (_, query) =
        choice.address().split_once('?').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let params: Vec<(String, String)> = serde_urlencoded::from_str(&query).unwrap();
    assert_eq!(Choice::new(&params), choice);
    assert_eq!((&*choice.app, &*choice.form, &*choice.from), ("a&b", "ndjson", "2026-03-10T08:00"));
    assert_eq!(choice.filters[0], "\"a,b\",c");
    assert_eq!(choice.fields, ["app", "props.x,y"]);
}

#[test]
fn named_ranges_end_today_or_yesterday() {
    let today = date(2026, 3, 1);
    let check =
        |range, first, last| assert_eq!(dates(range, today), Some((first, last)), "{range}");
    check("yesterday", date(2026, 2, 28), date(2026, 2, 28));
    check("last7", date(2026, 2, 23), today);
    check("month", today, today);
    assert_eq!(dates("custom", today), None);
    // In Kiritimati it is already tomorrow.
    let policy = Policy::new(vec![AppPolicy::new(Pid(1), "a")], vec![]);
    let app = policy.app_by_key("a").unwrap();
    let range = |zone: &str| {
        let choice =
            Choice::new(&[("range".into(), "yesterday".into()), ("timezone".into(), zone.into())]);
        let request = choice.export_request(&[app], &policy, at(DAY + 12 * 60 * MINUTE)).unwrap();
        request.parameters[0].1.clone()
    };
    assert_eq!([range("UTC"), range("Pacific/Kiritimati")], ["2026-03-09", "2026-03-10"]);
    let wrong =
        Choice::new(&[("range".into(), "never".into())]).export_request(&[app], &policy, at(DAY));
    assert!(matches!(&wrong.unwrap_err()[0], FieldError { field: "range", .. }));
}
