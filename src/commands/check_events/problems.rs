//! The values of one event by which it cannot match, or which look like a mistake of their producer.
//!
//! The engine says which values identify nobody. What is added here are values that it accepts, but that are probably
//! not what their field says.

use attribution::facts::addresses::{parse_address, public_address};
use attribution::facts::device_ids::{self, Form, IdKind, usable};
use attribution::facts::event::Fact;
use attribution::facts::ignored_values;
use attribution::facts::placeholders::{IgnoredReason, is_uuid};
use attribution::rules::policy::Policy;

attribution::named! {
    /// What is wrong with a value.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Problem {
        /// Absent or blank. For `install_begin_time` also 0 or less.
        Missing = "missing",
        /// A value that many devices send.
        Placeholder = "placeholder",
        /// A macro that the network did not expand.
        Macro = "macro",
        /// A value of an MD5 field that is not an MD5.
        NotMd5 = "not_md5",
        /// An `ip` that is not an address.
        NotAnAddress = "not_an_address",
        /// An address that many devices share.
        SharedAddress = "shared_address",
        /// A value of a raw field that looks like an MD5.
        Hashed = "hashed",
        /// A value of an MD5 field that looks like a UUID without dashes.
        NotHashed = "not_hashed",
        /// Letters in another case than the one of the platform.
        WrongCase = "wrong_case",
        /// An entry of `ids` that is not a kind of id.
        UnknownKind = "unknown_kind",
        /// A campaign that is not in the settings.
        UnknownCampaign = "unknown_campaign",
        /// An `event_id` that an event of another device has too.
        NotUnique = "not_unique",
    }
}

impl Problem {
    /// Checks whether events, matches or credit may be lost by the problem. All others are normal for a share of the
    /// devices, or make no difference.
    pub fn is_fault(self, field: &str) -> bool {
        match self {
            Self::Missing | Self::SharedAddress => false,
            // Every event should have an id of its own.
            Self::Placeholder => field == EVENT_ID,
            // All other raw ids match in any case.
            Self::WrongCase => field == IdKind::Idfv.name(),
            _ => true,
        }
    }

    fn of_reason(reason: IgnoredReason) -> Self {
        match reason {
            IgnoredReason::Placeholder => Self::Placeholder,
            IgnoredReason::Macro => Self::Macro,
            IgnoredReason::NotMd5 => Self::NotMd5,
            IgnoredReason::NotAnAddress => Self::NotAnAddress,
        }
    }
}

/// The field of the id of an activation or effect.
pub const EVENT_ID: &str = "event_id";

/// A value with a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding<'a> {
    pub field: &'static str,
    pub problem: Problem,
    pub value: &'a str,
}

/// Returns all problems of an event, except missing values.
pub fn of_fact<'a>(fact: &'a Fact, policy: &Policy) -> Vec<Finding<'a>> {
    let ignored = ignored_values::of_fact(fact).into_iter().map(|ignored| Finding {
        field: ignored.field,
        problem: Problem::of_reason(ignored.reason),
        value: ignored.value,
    });
    let device = fact.device();
    let mut findings: Vec<_> = ignored.collect();
    findings.extend(fact.ids().flat_map(|(name, received)| of_id(name, received)));
    let ip = device.ip;
    if parse_address(ip).is_some() && public_address(ip).is_none() {
        findings.push(Finding { field: "ip", problem: Problem::SharedAddress, value: ip });
    }
    if let Fact::Touch(touch) = fact
        && policy.campaign(touch.pid, touch.spreadid).is_none()
    {
        findings.push(Finding { field: "spreadid", problem: Problem::UnknownCampaign, value: "" });
    }
    findings
}

/// Returns the problem of a received `event_id` that identifies no event, and is therefore not in the fact.
pub fn of_event_id(received: &str) -> Option<Finding<'_>> {
    let reason = device_ids::ignored_event_id(received)?;
    Some(Finding { field: EVENT_ID, problem: Problem::of_reason(reason), value: received })
}

/// Returns the fields that every event of the type should have, each with whether this one has it, and the ids that
/// the event has.
pub fn fields(fact: &Fact) -> Vec<(&'static str, bool)> {
    let has = |text: &str| !text.trim().is_empty();
    // An id that is derived from the content begins with `#`.
    let has_event_id = |id: &str| !id.starts_with('#');
    let device = fact.device();
    let mut fields = match fact {
        Fact::Touch(touch) => {
            vec![("click_id", has(touch.click_id())), ("site", has(touch.site()))]
        }
        Fact::Activation(activation) => vec![
            (EVENT_ID, has_event_id(&activation.id)),
            ("click_id", has(&activation.click_id)),
            ("install_begin_time", activation.install_begin_time.is_some()),
        ],
        Fact::Effect(effect) => vec![(EVENT_ID, has_event_id(&effect.id))],
    };
    fields.extend([
        ("ip", has(device.ip)),
        ("ua", has(device.ua)),
        ("device_model", has(device.model)),
        ("os", has(device.os)),
        ("os_version", has(device.os_version)),
    ]);
    let present = fact.ids().filter(|(_, received)| has(received));
    let present = present.filter_map(|(name, _)| IdKind::parse(name));
    let first_id = fields.len();
    fields.extend(present.map(|(kind, form)| (field(kind, form), true)));
    // An array has a pair for each element.
    fields[first_id..].sort_unstable();
    fields.dedup();
    fields
}

fn field(kind: IdKind, form: Form) -> &'static str {
    match form {
        Form::Raw => kind.name(),
        Form::Md5 => kind.md5_name(),
    }
}

/// Returns the problems of one entry of `ids` besides those of ignored values.
fn of_id<'a>(name: &str, received: &'a str) -> Vec<Finding<'a>> {
    let Some((kind, form)) = IdKind::parse(name) else {
        let unknown = Finding { field: "ids", problem: Problem::UnknownKind, value: received };
        return if received.trim().is_empty() { Vec::new() } else { vec![unknown] };
    };
    let finding = |value| {
        let problem = match form {
            Form::Raw if is_hashed(kind, value) => Problem::Hashed,
            Form::Raw if has_wrong_case(kind, value) => Problem::WrongCase,
            Form::Md5 if has_random_uuids(kind) && is_random_uuid(value) => Problem::NotHashed,
            _ => return None,
        };
        Some(Finding { field: field(kind, form), problem, value })
    };
    usable(kind, form, received).filter_map(finding).collect()
}

/// Checks whether a value of a raw field is an MD5. A raw OAID or CAID can be 32 hex digits itself.
fn is_hashed(kind: IdKind, value: &str) -> bool {
    let has_md5_form = value.len() == 32 && is_uuid(value);
    has_md5_form
        && match kind {
            IdKind::Imei | IdKind::AndroidId | IdKind::Mac => true,
            IdKind::Gaid | IdKind::Idfa | IdKind::Idfv => !is_random_uuid(value),
            IdKind::Oaid | IdKind::Caid => false,
        }
}

/// Checks whether the platform makes ids of the kind as random UUIDs (version 4).
fn has_random_uuids(kind: IdKind) -> bool {
    matches!(kind, IdKind::Gaid | IdKind::Idfa | IdKind::Idfv)
}

/// Checks the version and variant of 32 hex digits. One MD5 in 64 passes too.
fn is_random_uuid(digits: &str) -> bool {
    let digit = |index: usize| digits.as_bytes().get(index).copied().unwrap_or_default();
    digit(12) == b'4' && matches!(digit(16), b'8' | b'9' | b'a' | b'b' | b'A' | b'B')
}

fn has_wrong_case(kind: IdKind, value: &str) -> bool {
    match kind {
        IdKind::Idfa | IdKind::Idfv => value.bytes().any(|byte| byte.is_ascii_lowercase()),
        IdKind::Gaid | IdKind::AndroidId => value.bytes().any(|byte| byte.is_ascii_uppercase()),
        IdKind::Oaid | IdKind::Caid | IdKind::Imei | IdKind::Mac => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "599f9c00-92dc-4b5c-9464-7971f01f8370";
    const MD5: &str = "83e9158a4fb54c0e1ef0b238639a23ae";

    #[track_caller]
    fn check(name: &str, value: &str, expected: Option<Problem>) {
        let found: Vec<_> = of_id(name, value).iter().map(|finding| finding.problem).collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{name} {value}");
    }

    #[test]
    fn a_hash_in_a_raw_field_is_found() {
        for name in ["imei", "android_id", "mac", "gaid", "idfa", "idfv"] {
            check(name, MD5, Some(Problem::Hashed));
        }
        let dashless = UUID.replace('-', "");
        for (name, value) in [("oaid", MD5), ("caid", MD5), ("gaid", &dashless), ("gaid", UUID)] {
            check(name, value, None);
        }
    }

    #[test]
    fn a_raw_id_in_an_md5_field_is_found() {
        let dashless = UUID.replace('-', "");
        for name in ["gaid_md5", "idfa_md5", "idfv_md5"] {
            check(name, &dashless, Some(Problem::NotHashed));
            check(name, MD5, None);
        }
        check("oaid_md5", &dashless, None);
        // The engine ignores it, for a reason of its own.
        check("idfa_md5", UUID, None);
    }

    #[test]
    fn the_case_of_an_idfv_is_a_fault_and_of_other_ids_is_not() {
        for (name, value) in [("idfa", UUID), ("idfv", UUID), ("gaid", &UUID.to_uppercase())] {
            check(name, value, Some(Problem::WrongCase));
            assert_eq!(Problem::WrongCase.is_fault(name), name == "idfv");
        }
        check("idfv", &UUID.to_uppercase(), None);
        check("android_id", "7B5CA2D57178D2F1", Some(Problem::WrongCase));
    }

    #[test]
    fn an_unknown_kind_of_id_is_found() {
        check("IMEI", "868049039501257", Some(Problem::UnknownKind));
        check("serial", " ", None);
    }
}
