//! What decodes stored bytes, for a fuzzer and for the inputs that are kept: see `docs/fuzzing.md`.
//! Each target takes any bytes, and panics where something does not hold.

mod figures;
mod keys;
mod values;

#[cfg(test)]
#[path = "../../../fuzz/kept.rs"]
mod kept;

/// By name, for any bytes.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("key", keys::key),
    ("row", values::row),
    ("home", values::record),
    ("figures", figures::figures),
    ("backup", values::backup),
];
