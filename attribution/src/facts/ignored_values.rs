//! The values of an event that count as absent or take part in no rule, for counters and explanations.

use super::addresses::parse_address;
use super::device_ids;
use super::event::{Activation, Device, Fact, TextPairs, Touch};
use super::placeholders::{IgnoredReason, ignored_click_id, without_macro};

/// A received value that is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IgnoredValue<'a> {
    /// The field; for an id its kind, for a member of `params` `params`.
    pub field: &'static str,
    pub value: &'a str,
    pub reason: IgnoredReason,
}

pub fn of_fact(fact: &Fact) -> Vec<IgnoredValue<'_>> {
    match fact {
        Fact::Touch(touch) => of_touch(touch),
        Fact::Activation(activation) => of_activation(activation),
        Fact::Effect(effect) => of_event("", (&effect.ids).into(), effect.device.borrowed()),
    }
}

pub fn of_activation(activation: &Activation) -> Vec<IgnoredValue<'_>> {
    let Activation { click_id, ids, device, .. } = activation;
    of_event(click_id, ids.into(), device.borrowed())
}

pub fn of_touch(touch: &Touch) -> Vec<IgnoredValue<'_>> {
    let mut ignored = of_event(touch.click_id(), touch.ids(), touch.device());
    ignored.extend(unexpanded("site", touch.site()));
    ignored.extend(touch.params().filter_map(|(_, value)| unexpanded("params", value)));
    ignored
}

fn of_event<'a>(
    click_id: &'a str,
    ids: TextPairs<'a>,
    device: Device<&'a str>,
) -> Vec<IgnoredValue<'a>> {
    let mut ignored = Vec::new();
    let trimmed = click_id.trim();
    if let Some(reason) = ignored_click_id(trimmed).filter(|_| !trimmed.is_empty()) {
        ignored.push(IgnoredValue { field: "click_id", value: click_id, reason });
    }
    for (name, received) in ids {
        let values = device_ids::ignored(name, received);
        ignored.extend(values.map(|(field, value, reason)| IgnoredValue { field, value, reason }));
    }
    let Device { ip, ua, model, os, os_version } = device;
    if !ip.trim().is_empty() && parse_address(ip).is_none() {
        let not_an_address =
            IgnoredValue { field: "ip", value: ip, reason: IgnoredReason::NotAnAddress };
        ignored.push(unexpanded("ip", ip).unwrap_or(not_an_address));
    }
    for (field, value) in
        [("ua", ua), ("device_model", model), ("os", os), ("os_version", os_version)]
    {
        ignored.extend(unexpanded(field, value));
    }
    ignored
}

fn unexpanded<'a>(field: &'static str, value: &'a str) -> Option<IgnoredValue<'a>> {
    let is_macro = !value.is_empty() && without_macro(value).is_empty();
    is_macro.then_some(IgnoredValue { field, value, reason: IgnoredReason::Macro })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::{EventTime, Pid, Purpose, SpreadId, TouchFields, TouchKind};

    #[test]
    fn every_field_is_checked() {
        let pair = |key: &str, value: &str| (Box::from(key), Box::from(value));
        let touch = Touch::from(TouchFields {
            pid: Pid(1),
            id: "c1".into(),
            click_id: "__CLICKID__".into(),
            kind: TouchKind::Click,
            purpose: Purpose::Ua,
            spreadid: SpreadId(7),
            time: EventTime::default(),
            lookback_ms: None,
            ids: vec![pair("mac", "02:00:00:00:00:00"), pair("oaid", ""), pair("serial", "0")],
            device: Device {
                ip: "unknown".into(),
                ua: "{ua}".into(),
                model: "unknown".into(),
                os: "%%OS%%".into(),
                os_version: "[v]".into(),
            },
            site: "<site>".into(),
            params: vec![pair("sub1", "$sub1$"), pair("sub2", "0")],
        });
        let found = of_touch(&touch);
        let found: Vec<_> = found.iter().map(|it| (it.field, it.reason)).collect();
        use IgnoredReason::{Macro, NotAnAddress, Placeholder};
        let expected = [
            ("click_id", Macro),
            ("mac", Placeholder),
            ("ip", NotAnAddress),
            ("ua", Macro),
            ("os", Macro),
            ("os_version", Macro),
            ("site", Macro),
            ("params", Macro),
        ];
        assert_eq!(found, expected);
    }
}
