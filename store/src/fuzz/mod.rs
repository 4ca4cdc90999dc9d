//! Fuzz targets for the decoders of stored bytes, run by a fuzzer and on checked-in inputs: see `docs/fuzzing.md`.
//! Each target takes any bytes, and panics if an invariant is violated.

mod figures;
mod keys;
mod values;

#[cfg(test)]
#[path = "../../../fuzz/stored_inputs.rs"]
mod stored_inputs;

/// A name, and the function that takes any bytes.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("key", keys::key),
    ("row", values::row),
    ("home", values::record),
    ("figures", figures::figures),
    ("backup", values::backup),
];
