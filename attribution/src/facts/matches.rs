//! Compares a touch with an activation: they match by click id, by a device id, or probabilistically.

use super::addresses::public_address;
use super::device_ids::{self, DeviceIds};
use super::event::{Activation, Device, Touch};
use super::placeholders::without_macro;
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
    // The id of a touch without a click id is derived, and nobody can name it.
    let by_click_id = device_ids::click_id(&activation.click_id)
        .is_some_and(|click_id| device_ids::click_id(touch.click_id()) == Some(click_id))
        .then_some(MatchType::ClickId);
    let by_device = || touch_ids.shared(activation_ids).map(MatchType::Device);
    let may_match_probabilistically = allow_probabilistic && !touch_ids.contradicts(activation_ids);
    Matches {
        by_id: by_click_id.or_else(by_device),
        probabilistic: may_match_probabilistically
            .then(|| probabilistic_match(touch.device(), activation.device.borrowed()))
            .flatten(),
    }
}

fn probabilistic_match(a: Device<&str>, b: Device<&str>) -> Option<MatchType> {
    let ip = public_address(a.ip)?;
    if public_address(b.ip) != Some(ip) {
        return None;
    }
    let same_device = device_model(a).is_some_and(|model| device_model(b) == Some(model));
    let same_ua = user_agent(a).is_some_and(|ua| user_agent(b) == Some(ua));
    if same_device { Some(MatchType::IpDevice) } else { same_ua.then_some(MatchType::IpUa) }
}

/// Returns model, OS and OS version, if all are known.
pub fn device_model(device: Device<&str>) -> Option<[&str; 3]> {
    let parts = [device.model, device.os, device.os_version].map(without_macro);
    parts.iter().all(|part| !part.is_empty()).then_some(parts)
}

/// Returns the user agent, if it is known.
pub fn user_agent(device: Device<&str>) -> Option<&str> {
    Some(without_macro(device.ua)).filter(|ua| !ua.is_empty())
}
