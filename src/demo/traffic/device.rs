//! Devices: their ids and attributes, and the form in which an ad channel sends them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use attribution::facts::device_ids::hex;
use fastrand::Rng;
use md5::{Digest, Md5};

use super::catalogue::IdForm;

/// Device ids by kind.
pub type Ids = BTreeMap<String, String>;

/// The kind and value of an id.
type Id = (&'static str, String);

#[derive(Debug, Clone)]
pub struct Device {
    /// The advertising id, by which channels identify the device. Devices without ad tracking have none.
    ad_id: Option<Id>,
    /// The id that the app reads from the operating system.
    system_id: Id,
    pub ip: String,
    pub ua: String,
    pub model: &'static str,
    pub os: &'static str,
    pub os_version: &'static str,
}

const ANDROIDS: [(&str, &str); 8] = [
    ("HUAWEI P60", "12"),
    ("Xiaomi 14", "14"),
    ("OPPO Reno11", "14"),
    ("vivo X100", "14"),
    ("SM-S9210", "13"),
    ("Pixel 8", "15"),
    ("荣耀 Magic6", "14"),
    ("Redmi K70, \"冠军版\"", "13"),
];
const IPHONES: [(&str, &str); 4] = [
    ("iPhone15,2", "17.6.1"),
    ("iPhone15,4", "18.1"),
    ("iPhone16,1", "18.1.1"),
    ("iPhone14,5", "16.7"),
];

impl Device {
    pub fn draw(rng: &mut Rng) -> Self {
        let ad_id = match rng.u32(0..100) {
            0..48 => Some(("oaid", uuid(rng))),
            48..60 => Some(("imei", format!("86{:013}", rng.u64(..10_u64.pow(13))))),
            60..70 => Some(("gaid", uuid(rng))),
            70..84 => Some(("idfa", uuid(rng).to_uppercase())),
            _ => None,
        };
        let is_iphone = match &ad_id {
            Some((kind, _)) => *kind == "idfa",
            None => rng.bool(),
        };
        let (model, os_version) = choose(rng, if is_iphone { &IPHONES } else { &ANDROIDS });
        let (system_id, os, ua) = if is_iphone {
            (("idfv", uuid(rng).to_uppercase()), "ios", iphone_ua(os_version))
        } else {
            let id = ("android_id", format!("{:016x}", rng.u64(1..)));
            (id, "android", android_ua(rng, model, os_version))
        };
        Self { ad_id, system_id, ip: draw_ip(rng), ua, model, os, os_version }
    }

    /// Returns the ids that the app sends: all of them, as they are.
    pub fn app_ids(&self) -> Ids {
        let ids = self.ad_id.iter().chain([&self.system_id]);
        ids.map(|(kind, value)| ((*kind).to_owned(), value.clone())).collect()
    }

    /// Returns the ids that a channel sends: one id in the channel's form, none without an advertising id.
    pub fn channel_ids(&self, form: IdForm) -> Ids {
        let Some((mut kind, mut value)) = self.ad_id.clone() else { return Ids::new() };
        let md5 = hex(&Md5::digest(&value));
        // The only system id that channels know is that of Android, because it is the same for every app.
        if form == IdForm::System && self.os == "android" {
            (kind, value) = self.system_id.clone();
        }
        Ids::from([match form {
            IdForm::Raw | IdForm::System => (kind.to_owned(), value),
            IdForm::Md5 => (format!("{kind}_md5"), md5),
            IdForm::Md5UpperCase => (format!("{kind}_md5"), md5.to_uppercase()),
        }])
    }

    /// Changes the IP address, as when the user leaves home.
    pub fn change_ip(&mut self, rng: &mut Rng) {
        self.ip = draw_ip(rng);
    }
}

fn choose<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(..from.len())]
}

fn uuid(rng: &mut Rng) -> String {
    let bits = rng.u128(..);
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        bits as u32,
        (bits >> 32) as u16,
        (bits >> 48) as u16 & 0xfff,
        (bits >> 64) as u16 & 0xfff,
        bits >> 80,
    )
}

/// Draws an address from the ranges reserved for documentation.
fn draw_ip(rng: &mut Rng) -> String {
    let host = rng.u8(1..255);
    match rng.u32(0..3) {
        0 => Ipv4Addr::new(198, 51, 100, host).to_string(),
        1 => Ipv4Addr::new(203, 0, 113, host).to_string(),
        _ => {
            Ipv6Addr::new(0x2001, 0xdb8, rng.u16(..), rng.u16(..), 0, 0, 0, host.into()).to_string()
        }
    }
}

fn android_ua(rng: &mut Rng, model: &str, os_version: &str) -> String {
    let (chrome, build) = (rng.u32(100..131), rng.u32(4000..7000));
    format!(
        "Mozilla/5.0 (Linux; Android {os_version}; {model}) AppleWebKit/537.36 (KHTML, like Gecko) \
         Version/4.0 Chrome/{chrome}.0.{build}.{} Mobile Safari/537.36",
        rng.u32(40..200)
    )
}

fn iphone_ua(os_version: &str) -> String {
    format!(
        "Mozilla/5.0 (iPhone; CPU iPhone OS {} like Mac OS X) AppleWebKit/605.1.15 \
         (KHTML, like Gecko) Mobile/15E148",
        os_version.replace('.', "_")
    )
}
