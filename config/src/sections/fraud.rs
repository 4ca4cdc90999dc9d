//! Reads fraud rules. The table of an app overrides the rules for all apps.

use attribution::facts::device_ids::{self, DeviceId};
use attribution::rules::policy::Fraud;

use super::known_ids::Channels;
use crate::parse::address;
use crate::parse::duration::parse_ms;
use crate::parse::error::Problem;
use crate::parse::section::Section;

/// Applies a `fraud` table to the rules; a list replaces the whole list.
pub(crate) fn read_rules(table: &mut Section<'_>, fraud: &mut Fraud, channels: &Channels) {
    fn set<T>(setting: &mut T, value: Option<T>) {
        if let Some(value) = value {
            *setting = value;
        }
    }
    set(&mut fraud.ctit_min_ms, table.text("ctit_min", parse_ms));
    let clicks_max = table.integer("clicks_per_device_max", 0..=u64::from(u32::MAX));
    set(&mut fraud.clicks_per_device_max, clicks_max);
    set(&mut fraud.block_ips, table.texts("block_ips", address::parse_range));
    set(&mut fraud.block_sites, table.texts("block_sites", parse_site));
    let devices = table.texts("block_devices", parse_device);
    set(&mut fraud.block_devices, devices.map(|devices| devices.concat()));
    let allowed = table.texts("allow_channels", |id| channels.parse(id));
    set(&mut fraud.allow_channels, allowed);
    set(&mut fraud.allow_sites, table.texts("allow_sites", parse_site));
}

fn parse_site(text: &str) -> Result<Box<str>, Problem> {
    // An empty entry would match all touches without a site.
    if text.is_empty() { Err("expected a site".into()) } else { Ok(text.into()) }
}

fn parse_device(text: &str) -> Result<Vec<DeviceId>, Problem> {
    match device_ids::parse_setting(text) {
        Some(ids) => Ok(ids.iter().cloned().collect()),
        None => Err("expected \"kind:value\" with a kind of oaid, gaid, idfa, caid, idfv, imei, \
                     android_id, mac, each also with _md5, and a value that identifies a device"
            .into()),
    }
}
