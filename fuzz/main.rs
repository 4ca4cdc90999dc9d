//! One program for all targets: `ADTRAIL_FUZZ` names the target; options are those of libFuzzer.
//! Built and run by `scripts/fuzz`; the targets are in the `fuzz` modules of the crates.
#![no_main]

mod memory;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

/// Memory that one input may allocate: a megabyte of input may become a few dozen.
const BYTES_MAX: usize = 128 << 20;

/// Returns the targets of all crates.
fn targets() -> impl Iterator<Item = (&'static str, fn(&[u8]))> {
    adtrail::fuzz::targets().chain(hbase_client::fuzz::TARGETS.iter().copied())
}

static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

fn target() -> fn(&[u8]) {
    *TARGET.get_or_init(|| {
        let name = std::env::var("ADTRAIL_FUZZ").unwrap_or_default();
        let found = targets().find(|(known, _)| *known == name);
        let known = || targets().map(|(known, _)| known).collect::<Vec<_>>();
        found.unwrap_or_else(|| panic!("ADTRAIL_FUZZ is {name:?}; known: {:?}", known())).1
    })
}

fuzz_target!(init: { target(); }, |input: &[u8]| {
    let target = target();
    let before = memory::begin();
    target(input);
    let allocated = memory::peak().saturating_sub(before);
    assert!(allocated <= BYTES_MAX, "an input of {} bytes allocated {allocated} bytes", input.len());
});
