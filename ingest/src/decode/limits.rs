//! Limits on the texts and members of an event, in bytes of UTF-8.
//!
//! Texts of rows are copied into exports, summaries and pages, so each has a limit of its own, far above what real
//! events need and far below the size of an event.

/// The maximum length of a text.
#[derive(Debug, Clone, Copy)]
pub struct TextLimit {
    pub bytes: usize,
    /// Completes "expected …".
    pub expected: &'static str,
}

macro_rules! at_most {
    ($bytes:literal) => {
        TextLimit { bytes: $bytes, expected: concat!("at most ", $bytes, " bytes") }
    };
}

pub const CURRENCY: TextLimit = at_most!(64);
/// Limit of names: of an effect, a device model, a version, or a member of `ids`, `params` and `props`.
pub const NAME: TextLimit = at_most!(256);
/// Limit of `click_id`, `event_id`, `site` and `ip`, which can be a list.
pub const ID: TextLimit = at_most!(1024);
/// Limit of user agents and of each text in `ids`, which can be a list of CAIDs.
pub const LONG: TextLimit = at_most!(2048);
/// Limit of each text in `params` and `props`.
pub const MEMBER: TextLimit = at_most!(8192);

/// Maximum number of values in `ids`, `params` and `props` each, including ignored kinds of ids.
pub const MEMBERS_MAX: usize = 256;
pub const MEMBERS_ALLOWED: &str = "at most 256 values";
