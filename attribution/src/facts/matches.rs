//! Compares a touch with an activation: they match by click id, by a device id, or probabilistically.

use std::net::IpAddr;

use super::device_ids::{self, DeviceIds};
use super::event::{Activation, Device, Touch};
use crate::rules::row::MatchType;

/// The best match by id and the best probabilistic match between a touch and an activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Matches {
    pub by_id: Option<MatchType>,
    pub probabilistic: Option<MatchType>,
}

/// Compares a touch with an activation of the same app. If they don't match, both fields are `None`.
pub fn compare(
    touch: &Touch,
    touch_ids: &DeviceIds,
    activation: &Activation,
    activation_ids: &DeviceIds,
    allow_probabilistic: bool,
) -> Matches {
    let by_click_id = device_ids::click_id(&activation.click_id)
        .is_some_and(|click_id| *click_id == *touch.id)
        .then_some(MatchType::ClickId);
    let by_device = || touch_ids.shared(activation_ids).map(MatchType::Device);
    let may_match_probabilistically = allow_probabilistic && !touch_ids.contradicts(activation_ids);
    Matches {
        by_id: by_click_id.or_else(by_device),
        probabilistic: may_match_probabilistically
            .then(|| probabilistic_match(&touch.device, &activation.device))
            .flatten(),
    }
}

fn probabilistic_match(a: &Device, b: &Device) -> Option<MatchType> {
    let ip = public_address(&a.ip)?;
    if public_address(&b.ip) != Some(ip) {
        return None;
    }
    let same_device =
        has_device_model(a) && a.model == b.model && a.os == b.os && a.os_version == b.os_version;
    let same_ua = !a.ua.is_empty() && a.ua == b.ua;
    if same_device { Some(MatchType::IpDevice) } else { same_ua.then_some(MatchType::IpUa) }
}

pub fn has_device_model(device: &Device) -> bool {
    !device.model.is_empty() && !device.os.is_empty() && !device.os_version.is_empty()
}

/// Parses an address; an IPv4-mapped IPv6 address becomes IPv4.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    text.trim().parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

/// Parses an address; `None` for private, loopback, link-local and carrier-grade NAT addresses, which many devices
/// share.
pub fn public_address(text: &str) -> Option<IpAddr> {
    parse_address(text).filter(|ip| match ip {
        IpAddr::V4(ip) => {
            let is_carrier_nat = matches!(ip.octets(), [100, 64..128, ..]);
            !(ip.is_private() || ip.is_loopback() || ip.is_link_local() || is_carrier_nat)
        }
        IpAddr::V6(ip) => !(ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unique_local()),
    })
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
        assert_eq!(shared, expected.is_some(), "facts share a key if and only if they match");
    }

    #[test]
    fn device_model_takes_precedence_over_user_agent() {
        let a = device("203.0.113.9", "agent", "X1");
        check(&a, &a, Some(MatchType::IpDevice));
        check(&a, &device("203.0.113.9", "agent", ""), Some(MatchType::IpUa));
        check(&a, &device("203.0.113.9", "", ""), None);
        check(&a, &device("203.0.113.9", "other", "X2"), None);
        check(&a, &device("203.0.113.8", "agent", "X1"), None);
    }

    #[test]
    fn addresses_are_compared_after_parsing() {
        let at = |ip| device(ip, "u", "");
        check(&at("2001:db8::1"), &at("2001:0DB8:0:0:0:0:0:1"), Some(MatchType::IpUa));
        check(&at("::ffff:203.0.113.9"), &at("203.0.113.9"), Some(MatchType::IpUa));
        check(&at("not an ip"), &at("not an ip"), None);
    }

    #[test]
    fn non_public_addresses_never_match() {
        let v4 = "10.1.2.3 172.31.0.1 192.168.1.1 127.0.0.1 169.254.3.4 100.64.3.9 100.127.255.255";
        let v6 = "::1 fe80::1 febf::1 fc00::1 fd00::1 ::ffff:10.0.0.1";
        for ip in v4.split(' ').chain(v6.split(' ')) {
            check(&device(ip, "u", "m"), &device(ip, "u", "m"), None);
        }
        for ip in ["172.32.0.1", "100.63.0.1", "100.128.0.1", "11.0.0.1", "fec0::1", "2001:db8::1"]
        {
            check(&device(ip, "u", ""), &device(ip, "u", ""), Some(MatchType::IpUa));
        }
    }
}
