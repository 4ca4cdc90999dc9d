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

    /// Conformance cases have other addresses.
    #[test]
    fn addresses_are_compared_after_parsing() {
        let ip: IpAddr = "203.0.113.9".parse().unwrap();
        assert_eq!(public_address("::ffff:203.0.113.9"), Some(ip));
        assert_eq!(public_address("::ffff:10.0.0.1"), None);
    }
}
