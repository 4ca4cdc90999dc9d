//! Texts of explanations that need no context.

use attribution::explain::explanation::{Evaluated, Ineligible};
use attribution::facts::event::EventTime;
use attribution::rules::policy::Origin;
use attribution::rules::row::InstallType;

use super::{origin_name, tier_number};

pub fn ineligible_text(reason: Ineligible) -> &'static str {
    match reason {
        Ineligible::NotBefore => "not before the activation (section 3)",
        Ineligible::TooOld => "older than its window (section 3)",
        Ineligible::NotRetargeting => "a reinstall considers only purpose retargeting (section 3)",
        Ineligible::OtherDevice => {
            "of another device: both have an id of the same kind, with different values (section 3)"
        }
        Ineligible::NoMatch => {
            "none of its device ids, click id and probabilistic keys equals the activation's (section 3)"
        }
    }
}

pub fn class_name(install_type: InstallType) -> &'static str {
    match install_type {
        InstallType::Install => "an install",
        InstallType::Reinstall => "a reinstall",
        InstallType::Duplicate => "a duplicate",
    }
}

pub fn tier(one: &Evaluated) -> String {
    let Some(found) = one.found else { return "no tier".into() };
    let how = if found.match_type.is_probabilistic() { "probabilistic" } else { "by id" };
    format!("tier {} ({} {how})", tier_number(found), one.touch.kind.name())
}

pub fn origin(origin: Option<Origin>) -> String {
    match origin {
        None => "its own lookback".into(),
        Some(Origin::Default) => "the default".into(),
        Some(Origin::AllApps) => "set for all apps".into(),
        Some(_) => format!("set for its {}", origin_name(origin)),
    }
}

/// Formats how long before or after the activation another event was.
pub fn age(activation: EventTime, other: EventTime) -> String {
    match activation.since(other) {
        Some(0) => "at the same millisecond".into(),
        Some(ms) => format!("{} before", span(ms)),
        None => format!("{} after", span(other.since(activation).unwrap_or(0))),
    }
}

/// Formats a duration in its units that are not zero: `7 d`, `1 h 30 min`, `59.999 s`.
pub fn span(ms: u64) -> String {
    let (days, hours, minutes) = (ms / 86_400_000, ms / 3_600_000 % 24, ms / 60_000 % 60);
    let mut parts = Vec::new();
    for (count, unit) in [(days, "d"), (hours, "h"), (minutes, "min")] {
        if count > 0 {
            parts.push(format!("{count} {unit}"));
        }
    }
    let rest_ms = ms % 60_000;
    if !rest_ms.is_multiple_of(1_000) {
        parts.push(format!("{}.{:03} s", rest_ms / 1_000, rest_ms % 1_000));
    } else if rest_ms > 0 || parts.is_empty() {
        parts.push(format!("{} s", rest_ms / 1_000));
    }
    parts.join(" ")
}
