//! The service over a real store, tested over HTTP. Start with `fixture`, which runs it.

mod downloads;
pub(crate) mod fixture;
mod formats;
mod malformed;
mod requests;
mod selection;
mod surface;

use attribution::facts::event::{Fact, Pid};

use fixture::{Answer, Bed, DAY, MINUTE, activation, click, effect};

/// A credited install with a contributor, its effect, an organic install, an orphan with a hostile name, and an
/// install of another app.
pub(crate) fn facts() -> Vec<Fact> {
    let mut other = activation("b-1", "d9", DAY + MINUTE);
    other.pid = Pid(2);
    vec![
        click(9, "c-0", "d1", DAY - 3 * MINUTE),
        click(7, "c-1", "d1", DAY - MINUTE),
        Fact::Activation(activation("a-1", "d1", DAY + MINUTE)),
        Fact::Effect(effect("e-1", "purchase", "d1", DAY + 2 * MINUTE)),
        Fact::Activation(activation("a-2", "d2", DAY + 3 * MINUTE)),
        Fact::Effect(effect("e-2", "a,\r\n\"b\" ü", "d3", DAY + 4 * MINUTE)),
        Fact::Activation(other),
    ]
}

fn bed() -> Bed {
    Bed::new(facts())
}

#[track_caller]
fn check_headers(answer: &Answer, expected: &[(&str, Option<&str>)]) {
    for (name, value) in expected {
        assert_eq!(answer.header(name), *value, "{name}");
    }
}

#[track_caller]
pub(crate) fn check_problem(answer: &Answer, status: u16, kind: &str, parameter: Option<&str>) {
    assert_eq!(answer.status, status);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let problem = answer.json();
    assert_eq!(problem["type"], format!("/problems/{kind}"));
    assert_eq!(problem["status"], status);
    assert_eq!(problem["parameter"].as_str(), parameter);
    assert!(problem["title"].is_string() && problem["detail"].is_string());
}
