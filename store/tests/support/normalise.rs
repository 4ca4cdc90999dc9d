//! Section 1 of the contract as the reference applies it: received values become the values that are compared. Written
//! from the contract in the simplest form; shares no code with the engine.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::LazyLock;

use attribution::facts::event::TextPairs;
use md5::{Digest as _, Md5};

/// The kinds of device id, best match first.
pub const KINDS: [&str; 8] = ["oaid", "gaid", "idfa", "caid", "idfv", "imei", "android_id", "mac"];

/// The kind of an id, its form and its text.
pub type Id = (&'static str, Form, String);
pub type Ids = BTreeSet<Id>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    Raw,
    Md5,
}

/// What the ids belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Touch,
    /// An activation or an effect.
    AppEvent,
}

/// Returns all values of the ids, in every form in which they match.
pub fn ids(received: TextPairs<'_>, owner: Owner) -> Ids {
    let mut ids = Ids::new();
    for (name, text) in received {
        let (name, form) = match name.strip_suffix("_md5") {
            Some(name) => (name, Form::Md5),
            None => (name, Form::Raw),
        };
        let Some(kind) = KINDS.into_iter().find(|kind| *kind == name) else { continue };
        let values: Vec<&str> = if kind == "caid" { text.split(',').collect() } else { vec![text] };
        for value in values.into_iter().map(str::trim) {
            match form {
                Form::Md5 => ids.extend(received_md5(value).map(|md5| (kind, Form::Md5, md5))),
                Form::Raw => ids.extend(forms(kind, value, owner)),
            }
        }
    }
    ids
}

/// Returns the trimmed click id; `None` if it identifies no click.
pub fn click_id(received: &str) -> Option<String> {
    let trimmed = received.trim();
    let referrer = percent_decoded(&percent_decoded(trimmed)).to_ascii_lowercase();
    let is_of_play = matches!(
        &*referrer,
        "utm_source=google-play&utm_medium=organic" | "utm_source=(not set)&utm_medium=(not set)"
    );
    (identifies_somebody(trimmed) && !is_of_play).then(|| trimmed.to_owned())
}

/// Checks whether a received event id identifies an event. Numbers do.
pub fn identifies_event(received: &str) -> bool {
    let as_written = |text: &str| {
        let lower = text.to_ascii_lowercase();
        let is_word = WORDS_OF_NOBODY.contains(&&*lower) && lower != "0" && lower != "-1";
        let is_uuid = ["0", "f"].iter().any(|digit| lower.replace('-', "") == digit.repeat(32));
        !(is_word || (is_uuid && dashed(text).is_some()) || is_macro(text))
    };
    let trimmed = received.trim();
    as_written(trimmed) && as_written(percent_decoded(trimmed).trim())
}

/// Returns a text other than an id; `None` if it is empty or an unexpanded macro.
pub fn present(text: &str) -> Option<&str> {
    let is_absent = is_macro(text.trim()) || is_macro(percent_decoded(text.trim()).trim());
    (!text.is_empty() && !is_absent).then_some(text)
}

pub fn md5_hex(text: &str) -> String {
    Md5::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a raw id and its MD5 values; nothing if it identifies nobody.
fn forms(kind: &'static str, value: &str, owner: Owner) -> Vec<Id> {
    let raw = raw_form(kind, value);
    let is_shared = IDS_OF_MANY.contains(&(kind, &*raw)) || IDS_OF_MANY.contains(&(kind, value));
    let is_json =
        kind == "caid" && (is_part_of_json(&raw) || is_part_of_json(&percent_decoded(&raw)));
    if !identifies_somebody(value) || !identifies_somebody(&raw) || is_shared || is_json {
        return vec![];
    }
    let mut texts = texts_of_touch(kind, &raw);
    if owner == Owner::AppEvent {
        texts.extend(further_texts_of_app_event(kind, value, &raw));
    }
    let mut ids: Vec<Id> = texts.iter().map(|text| (kind, Form::Md5, md5_hex(text))).collect();
    ids.push((kind, Form::Raw, raw));
    ids
}

fn raw_form(kind: &str, value: &str) -> String {
    match kind {
        "idfa" => dashed(value).unwrap_or_else(|| value.to_owned()).to_uppercase(),
        "gaid" | "oaid" => dashed(value).unwrap_or_else(|| value.to_owned()),
        "imei" | "android_id" => value.to_lowercase(),
        "mac" => value.replace([':', '-', '.', ' '], "").to_lowercase(),
        "caid" => match value.split_once('_') {
            Some((version, caid)) if version.len() == 8 && is_decimal(version) => {
                caid.trim().to_owned()
            }
            _ => value.to_owned(),
        },
        _ => value.to_owned(),
    }
}

/// Returns the texts of which a touch has the MD5 values.
fn texts_of_touch(kind: &str, raw: &str) -> Vec<String> {
    let (lower, upper) = (raw.to_lowercase(), raw.to_uppercase());
    match kind {
        "idfa" => vec![upper],
        "imei" | "oaid" | "gaid" | "caid" => vec![lower],
        "android_id" => vec![lower, upper],
        "mac" => vec![with_colons(&upper), upper],
        _ => vec![],
    }
}

fn further_texts_of_app_event(kind: &str, value: &str, raw: &str) -> Vec<String> {
    let mut texts = vec![value.to_owned(), value.to_lowercase(), value.to_uppercase()];
    if dashed(value).is_some() {
        let without_dashes: Vec<_> = texts.iter().map(|text| text.replace('-', "")).collect();
        texts.extend(without_dashes);
    }
    if kind == "mac" {
        texts.extend([raw.to_owned(), with_colons(raw)]);
    }
    texts
}

fn with_colons(mac: &str) -> String {
    let letters: Vec<char> = mac.chars().collect();
    let bytes: Vec<String> = letters.chunks(2).map(|byte| byte.iter().collect()).collect();
    bytes.join(":")
}

/// Returns a UUID, with or without dashes, in lower case with dashes; `None` for any other text.
fn dashed(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let digits = lower.replace('-', "");
    if digits.len() != 32 || !is_hex(&digits) {
        return None;
    }
    let groups = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    let dashed = groups.join("-");
    (lower == digits || lower == dashed).then_some(dashed)
}

fn is_decimal(text: &str) -> bool {
    text.chars().all(|letter| letter.is_ascii_digit())
}

fn is_hex(text: &str) -> bool {
    text.chars().all(|letter| letter.is_ascii_hexdigit())
}

fn received_md5(value: &str) -> Option<String> {
    let md5 = value.to_lowercase();
    let is_md5 = md5.len() == 32 && is_hex(&md5);
    (is_md5 && !MD5S_OF_NOBODY.contains(&md5)).then_some(md5)
}

/// Ids of many devices, in raw form; the last is one in upper case only.
const IDS_OF_MANY: [(&str, &str); 10] = [
    ("mac", "020000000000"),
    ("mac", "525400123456"),
    ("mac", "0215b2000000"),
    ("imei", "004999010640000"),
    ("imei", "00499901064000"),
    ("imei", "812345678912345"),
    ("android_id", "9774d56d682e549c"),
    ("android_id", "a5f5faddde9e9f02"),
    ("android_id", "8e17f7422b35fbea"),
    ("android_id", "1234567890ABCDEF"),
];

const WORDS_OF_NOBODY: [&str; 16] = [
    "",
    "0",
    "-1",
    "null",
    "(null)",
    "nil",
    "nan",
    "unknown",
    "(unknown)",
    "(not set)",
    "undefined",
    "none",
    "n/a",
    "default",
    "false",
    "true",
];

static MD5S_OF_NOBODY: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let mut texts = vec!["NaN".to_owned()];
    for (kind, id) in IDS_OF_MANY {
        match kind {
            "mac" => {
                let colons = with_colons(id);
                for text in [id, &colons, &colons.replace(':', "-")] {
                    texts.extend([text.to_owned(), text.to_uppercase()]);
                }
            }
            "android_id" if id != "1234567890ABCDEF" => {
                texts.extend([id.to_owned(), id.to_uppercase()]);
            }
            _ => texts.push(id.to_owned()),
        }
    }
    for name in ["OAID", "GAID", "IDFA", "CAID", "IDFV", "IMEI", "ANDROID_ID", "ANDROIDID", "MAC"] {
        for end in ["", "1", "2", "3", "_MD5"] {
            let name = format!("{name}{end}");
            for text in [
                format!("__{name}__"),
                format!("{{{name}}}"),
                format!("{{{{{name}}}}}"),
                format!("${{{name}}}"),
                format!("${name}$"),
                format!("%%{name}%%"),
                format!("[{name}]"),
                format!("<{name}>"),
            ] {
                texts.extend([text.to_lowercase(), text]);
            }
        }
    }
    for word in WORDS_OF_NOBODY {
        let start = word.find(char::is_alphabetic).unwrap_or(0);
        let (before, rest) = word.split_at(start);
        let capitalised = rest.chars().take(1).map(|letter| letter.to_ascii_uppercase());
        let capitalised: String = capitalised.chain(rest.chars().skip(1)).collect();
        texts.extend([word.to_owned(), word.to_uppercase(), format!("{before}{capitalised}")]);
    }
    texts.extend([8, 12, 14, 15, 16, 17, 32].map(|zeros| "0".repeat(zeros)));
    for uuid in [
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
    ] {
        texts.extend([uuid.to_owned(), uuid.replace('-', "")]);
    }
    for mac in ["00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "FF:FF:FF:FF:FF:FF"] {
        texts.extend([mac.to_owned(), mac.replace(':', "-"), mac.replace(':', "")]);
    }
    let mut md5s: BTreeSet<String> = texts.iter().map(|text| md5_hex(text)).collect();
    md5s.extend(["0".repeat(32), "f".repeat(32)]);
    md5s
});

fn is_part_of_json(text: &str) -> bool {
    text.contains(['"', '{', '}', '[', ']'])
}

/// Checks that a trimmed text, percent-encoded or not, is not a value that identifies nobody, whatever its kind.
fn identifies_somebody(text: &str) -> bool {
    identifies_as_written(text) && identifies_as_written(percent_decoded(text).trim())
}

fn identifies_as_written(text: &str) -> bool {
    let consists_of = |letters: &str| text.chars().all(|letter| letters.contains(letter));
    let is_word = WORDS_OF_NOBODY.contains(&&*text.to_ascii_lowercase());
    let is_md5 = MD5S_OF_NOBODY.contains(&text.to_ascii_lowercase());
    !(is_word || consists_of("0-:") || consists_of("fF-:") || is_macro(text) || is_md5)
}

/// Decodes percent-encoding once, and `+` as a space; returns any other text unchanged.
fn percent_decoded(text: &str) -> String {
    let with_spaces = text.replace('+', " ");
    let mut parts = with_spaces.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).filter(|digits| is_hex(digits));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => bytes.extend(format!("%{part}").into_bytes()),
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// Checks whether an unexpanded macro fills the trimmed text. JSON, a UUID in braces and a user agent in brackets are
/// not macros.
fn is_macro(text: &str) -> bool {
    let delimiters =
        [("__", "__"), ("{", "}"), ("${", "}"), ("$", "$"), ("%%", "%%"), ("[", "]"), ("<", ">")];
    delimiters.into_iter().any(|(open, close)| {
        let name = text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
        name.is_some_and(|name| {
            !name.is_empty() && !name.contains(['"', ';', '/']) && dashed(name).is_none()
        })
    })
}

/// Parses an address, with or without brackets and a port, or the first of a list.
pub fn address(text: &str) -> Option<IpAddr> {
    let first = text.split(',').next()?.trim();
    let (host, port) = match first.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) };
            (host, port)
        }
        // An IPv6 address has more than one colon.
        None if first.matches(':').count() == 1 => {
            let (host, port) = first.split_once(':')?;
            (host, Some(port))
        }
        None => (first, None),
    };
    let is_port = port.is_none_or(|port| is_decimal(port) && port.parse::<u16>().is_ok());
    host.parse::<IpAddr>().ok().filter(|_| is_port).map(|ip| ip.to_canonical())
}

/// Parses an address; `None` for one that many devices share or that is a network's.
pub fn address_of_one_device(text: &str) -> Option<IpAddr> {
    address(text).filter(|ip| !is_shared(*ip) && !is_ipv6_network(*ip))
}

/// Checks whether a global unicast address, of 2000::/3, ends with 64 zero bits.
fn is_ipv6_network(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.to_bits() >> 125 == 1 && ip.to_bits() << 64 == 0,
    }
}

fn is_shared(ip: IpAddr) -> bool {
    let networks: [(&str, u32); 13] = [
        ("10.0.0.0", 8),
        ("172.16.0.0", 12),
        ("192.168.0.0", 16),
        ("127.0.0.0", 8),
        ("169.254.0.0", 16),
        ("100.64.0.0", 10),
        ("0.0.0.0", 8),
        ("224.0.0.0", 3),
        ("1.1.1.1", 32),
        ("::", 128),
        ("::1", 128),
        ("fe80::", 10),
        ("fc00::", 7),
    ];
    networks.into_iter().any(|(network, bits)| {
        match (network.parse::<IpAddr>().expect("the network is an address"), ip) {
            (IpAddr::V4(network), IpAddr::V4(ip)) => {
                (network.to_bits() ^ ip.to_bits()).leading_zeros() >= bits
            }
            (IpAddr::V6(network), IpAddr::V6(ip)) => {
                (network.to_bits() ^ ip.to_bits()).leading_zeros() >= bits
            }
            _ => false,
        }
    })
}
