//! Fuzz targets for decoding requests and writing arbitrary rows: see `docs/fuzzing.md`. Each target takes any bytes
//! and panics if an invariant does not hold. Unit tests run the stored inputs.

mod requests;
mod rows;

#[cfg(test)]
#[path = "../../../fuzz/stored_inputs.rs"]
mod stored_inputs;

use std::sync::LazyLock;

use config::Config;

/// A name, and a function that takes any bytes.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("query", requests::query),
    ("short-answers", requests::short_answers),
    ("appsflyer", requests::appsflyer),
    ("page", crate::page::fuzz::page),
    ("cursor", requests::cursor),
    ("token", requests::token),
    ("rows", rows::rows),
];

/// Settings with names that need quotes in CSV.
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
