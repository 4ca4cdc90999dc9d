//! Whether a touch and an activation match, by a click id, a device id or probabilistically.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::device_ids::{self, DeviceIds};
use super::event::{Activation, Device, Touch};
use crate::rules::policy::IpRange;
use crate::rules::row::MatchType;

/// The best match by id and the best probabilistic one between a touch and an activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Matches {
    pub by_id: Option<MatchType>,
    pub probabilistic: Option<MatchType>,
}

/// Returns how a touch and an activation of one app match; `None` twice if they don't.
pub fn matches(
    touch: (&Touch, &DeviceIds),
    activation: (&Activation, &DeviceIds),
    probabilistic: bool,
) -> Matches {
    let by_click_id = device_ids::click_id(&activation.0.click_id)
        .is_some_and(|click_id| *click_id == *touch.0.id)
        .then_some(MatchType::ClickId);
    let by_device = || touch.1.shared(activation.1).map(MatchType::Device);
    let may_match = probabilistic && !touch.1.contradicts(activation.1);
    Matches {
        by_id: by_click_id.or_else(by_device),
        probabilistic: may_match
            .then(|| probabilistic_match(&touch.0.device, &activation.0.device))
            .flatten(),
    }
}

fn probabilistic_match(a: &Device, b: &Device) -> Option<MatchType> {
    let ip = personal_address(&a.ip)?;
    if personal_address(&b.ip) != Some(ip) {
        return None;
    }
    let same_device =
        names_device(a) && a.model == b.model && a.os == b.os && a.os_version == b.os_version;
    let same_ua = !a.ua.is_empty() && a.ua == b.ua;
    if same_device { Some(MatchType::IpDevice) } else { same_ua.then_some(MatchType::IpUa) }
}

pub fn names_device(device: &Device) -> bool {
    !device.model.is_empty() && !device.os.is_empty() && !device.os_version.is_empty()
}

/// Parses an address; an IPv4-mapped IPv6 address becomes IPv4.
pub fn address(text: &str) -> Option<IpAddr> {
    text.trim().parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

/// Address ranges shared by many devices; no probabilistic key contains such an address.
const SHARED: [IpRange; 9] = [
    v4([10, 0, 0, 0], 8),
    v4([172, 16, 0, 0], 12),
    v4([192, 168, 0, 0], 16),
    v4([127, 0, 0, 0], 8),
    v4([169, 254, 0, 0], 16),
    v4([100, 64, 0, 0], 10),
    v6([0, 0, 0, 0, 0, 0, 0, 1], 128),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),
];

const fn v4([a, b, c, d]: [u8; 4], prefix_bits: u8) -> IpRange {
    IpRange { network: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix_bits }
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], prefix_bits: u8) -> IpRange {
    IpRange { network: IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), prefix_bits }
}

pub fn personal_address(text: &str) -> Option<IpAddr> {
    address(text).filter(|ip| !SHARED.iter().any(|range| range.contains(*ip)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::match_keys::probabilistic_keys;

    fn device(ip: &str, ua: &str, model: &str) -> Device {
        Device {
            ip: ip.into(),
            ua: ua.into(),
            model: model.into(),
            os: "android".into(),
            os_version: "14".into(),
        }
    }

    #[track_caller]
    fn check(a: &Device, b: &Device, expected: Option<MatchType>) {
        assert_eq!(probabilistic_match(a, b), expected);
        let shared = probabilistic_keys(a).any(|key| probabilistic_keys(b).any(|k| k == key));
        assert_eq!(shared, expected.is_some(), "facts share a key exactly if they match");
    }

    #[test]
    fn device_model_matches_before_user_agent() {
        let a = device("203.0.113.9", "agent", "X1");
        check(&a, &a, Some(MatchType::IpDevice));
        check(&a, &device("203.0.113.9", "agent", ""), Some(MatchType::IpUa));
        check(&a, &device("203.0.113.9", "", ""), None);
        check(&a, &device("203.0.113.9", "other", "X2"), None);
        check(&a, &device("203.0.113.8", "agent", "X1"), None);
    }

    #[test]
    fn addresses_are_compared_parsed() {
        check(
            &device("2001:db8::1", "u", ""),
            &device("2001:0DB8:0:0:0:0:0:1", "u", ""),
            Some(MatchType::IpUa),
        );
        check(
            &device("::ffff:203.0.113.9", "u", ""),
            &device("203.0.113.9", "u", ""),
            Some(MatchType::IpUa),
        );
        check(&device("not an ip", "u", ""), &device("not an ip", "u", ""), None);
    }

    #[test]
    fn shared_addresses_match_nobody() {
        for ip in [
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "127.0.0.1",
            "169.254.3.4",
            "100.64.3.9",
            "::1",
            "fe80::1",
            "fd00::1",
            "::ffff:10.0.0.1",
        ] {
            check(&device(ip, "u", "m"), &device(ip, "u", "m"), None);
        }
        for ip in ["172.32.0.1", "100.128.0.1", "11.0.0.1", "2001:db8::1"] {
            check(&device(ip, "u", ""), &device(ip, "u", ""), Some(MatchType::IpUa));
        }
    }
}
