//! What decodes requests, and what writes rows whatever is in them, for a fuzzer and for the inputs
//! that are kept: see `docs/fuzzing.md`. Each target takes any bytes, and panics where something does
//! not hold.

mod asked;
mod rows;

#[cfg(test)]
#[path = "../../../fuzz/kept.rs"]
mod kept;

use std::sync::LazyLock;

use config::Config;

/// By name, for any bytes.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("query", asked::query),
    ("short-answers", asked::short_answers),
    ("appsflyer", asked::appsflyer),
    ("page", crate::page::fuzz::page),
    ("cursor", asked::cursor),
    ("token", asked::token),
    ("rows", rows::rows),
];

/// With an app whose campaign and channel have to be quoted.
pub(crate) static CONFIG: LazyLock<Option<Config>> = LazyLock::new(|| {
    let settings = r#"
        [[apps]]
        pid = 1
        key = "app,x"
        name = 'App "X"'
        [[channels]]
        id = "tou,tiao"
        [[campaigns]]
        spreadid = 7
        pid = 1
        channel = "tou,tiao"
        name = 'Say "hi"'
        [[tokens]]
        id = "reader"
        sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
        apps = ["app,x"]
    "#;
    config::parse(settings).ok()
});
