//! Time zones by their IANA name or offset.

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};

use config::nearest::nearest;

/// The names of UTC, each also with the prefix `Etc/`.
const UTC_NAMES: [&str; 4] = ["UTC", "UCT", "Universal", "Zulu"];

/// A time zone of the bundled IANA database, or a fixed offset from UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    pub(super) zone: TimeZone,
    name: Box<str>,
}

impl Zone {
    pub fn utc() -> Self {
        Self { zone: TimeZone::UTC, name: "UTC".into() }
    }

    /// Parses an IANA name, ignoring case, or an offset: `+08:00`, `+0800`, `+08` or `+8`.
    ///
    /// # Errors
    /// It is neither; the error says what to write instead.
    pub fn parse(name: &str) -> Result<Self, String> {
        if let Some(zone) = offset_minutes(name).and_then(Self::fixed) {
            return Ok(zone);
        }
        let found = TimeZoneDatabase::bundled().get(name).ok().filter(|zone| !zone.is_unknown());
        let zone = found.ok_or_else(|| unknown(name))?;
        let name: Box<str> = zone.iana_name().unwrap_or(name).into();
        // All names of UTC are one zone, which is written with `Z`.
        let is_utc = UTC_NAMES.contains(&name.strip_prefix("Etc/").unwrap_or(&name));
        Ok(if is_utc { Self::utc() } else { Self { zone, name } })
    }

    /// Returns the zone of an offset, whose name is like `+08:00`. Zero is UTC.
    fn fixed(minutes: i32) -> Option<Self> {
        let zone = TimeZone::fixed(Offset::from_seconds(minutes * 60).ok()?);
        let name = offset_text(minutes).into();
        Some(if minutes == 0 { Self::utc() } else { Self { zone, name } })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the offset of a local time from UTC. A local time that a change of offset skips or repeats has the
    /// offset from before the change.
    pub(crate) fn offset(&self, local: DateTime) -> SignedDuration {
        let offset = match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Gap { before, .. } | AmbiguousOffset::Fold { before, .. } => before,
        };
        SignedDuration::from_secs(offset.seconds().into())
    }
}

/// Parses `+08:00`, `+0800`, `+08` or `+8`, up to `+23:59` like the offsets of times. An unescaped plus in a query
/// arrives as a space.
fn offset_minutes(text: &str) -> Option<i32> {
    let (sign, digits) = text.split_at_checked(1)?;
    let sign = match sign {
        "+" | " " => 1,
        "-" => -1,
        _ => return None,
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None if digits.len() == 4 => digits.split_at_checked(2)?,
        None => (digits, "00"),
    };
    let is_offset = matches!((hours.len(), minutes.len()), (1 | 2, 2));
    let number = |text: &str, max: i32| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<i32>().ok())?.filter(|number| *number <= max)
    };
    is_offset.then_some(())?;
    Some(sign * (number(hours, 23)? * 60 + number(minutes, 59)?))
}

fn offset_text(minutes: i32) -> String {
    let sign = if minutes < 0 { '-' } else { '+' };
    let minutes = minutes.abs();
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

/// Says what to write instead of an unknown name.
fn unknown(name: &str) -> String {
    const EXPECTED: &str =
        "expected an IANA time zone name such as Asia/Shanghai, or an offset such as +08:00";
    if name.starts_with(['+', '-', ' ']) {
        return format!("{EXPECTED}, from -23:59 to +23:59");
    }
    if let Some(hint) = sign_hint(name) {
        return format!("{EXPECTED}; {hint}");
    }
    let names: Vec<String> =
        TimeZoneDatabase::bundled().available().map(|name| name.to_string()).collect();
    // Many people know their zone by its city.
    let city = names
        .iter()
        .find(|known| known.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(name)));
    let nearest = || nearest(name, names.iter().map(String::as_str));
    let nearest = city.map(String::as_str).or_else(nearest).unwrap_or_default();
    format!("{EXPECTED}, the nearest is {nearest:?}")
}

/// Explains what to write for `GMT+8` or `UTC+8`. In IANA names (`Etc/GMT-8`) as in POSIX, the sign is inverted.
fn sign_hint(name: &str) -> Option<String> {
    let (prefix, offset) = name.split_at(name.find(['+', '-', ' '])?);
    let minutes = offset_minutes(offset)?;
    match &*prefix.to_ascii_uppercase() {
        "GMT" | "UTC" => {
            let offset = offset_text(minutes);
            let same = format!("Etc/GMT{:+}", -(minutes / 60));
            let is_known = minutes % 60 == 0 && TimeZoneDatabase::bundled().get(&same).is_ok();
            let same = if is_known {
                format!(", which is {same}: signs of Etc names are inverted")
            } else {
                String::new()
            };
            Some(format!("for {} write {offset}{same}", name.replace(' ', "+")))
        }
        "ETC/GMT" | "ETC/UTC" => {
            let hint = "signs of Etc names are inverted: Etc/GMT-8 is +08:00, Etc/GMT+8 is -08:00 \
                        (in a URL, write %2B for a +)";
            Some(hint.to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_unknown(name: &str, part: &str) {
        let problem = Zone::parse(name).expect_err(name);
        assert!(problem.contains(part), "{problem}");
    }

    #[test]
    fn zones_have_iana_names() {
        assert_eq!(Zone::parse("asia/shanghai").unwrap().name(), "Asia/Shanghai");
        for name in ["utc", "Etc/UTC", "zulu", "etc/uct", "Universal"] {
            assert_eq!(Zone::parse(name).unwrap(), Zone::utc(), "{name}");
        }
        assert_eq!(Zone::parse("Etc/GMT").unwrap().name(), "Etc/GMT");
        check_unknown("Asia/Shangai", ", the nearest is \"Asia/Shanghai\"");
        check_unknown("Europe/Berlim", ", the nearest is \"Europe/Berlin\"");
        check_unknown("shanghai", ", the nearest is \"Asia/Shanghai\"");
        check_unknown("Etc/Unknown", ", the nearest is \"Etc/UCT\"");
    }

    #[test]
    fn offsets_are_zones() {
        let check = |text: &str, name: &str| {
            assert_eq!(Zone::parse(text).unwrap().name(), name, "{text:?}");
        };
        for text in ["+08:00", "+8:00", "+0800", "+08", "+8", " 08:00", " 8"] {
            check(text, "+08:00");
        }
        check("-05:30", "-05:30");
        check("-0330", "-03:30");
        check("+23:59", "+23:59");
        for text in ["+00:00", "-00:00", "+0", " 00"] {
            assert_eq!(Zone::parse(text).unwrap(), Zone::utc(), "{text:?}");
        }
        for text in
            ["+", "+24:00", "+08:60", "+8:0", "+080", "+08:00:00", "+08000", "+-8", "-\u{e9}123"]
        {
            check_unknown(text, "or an offset such as +08:00, from -23:59 to +23:59");
        }
        // Without a sign it would be a time of day.
        check_unknown("08:00", "or an offset such as +08:00, ");
        let noon = DateTime::constant(2026, 3, 10, 12, 0, 0, 0);
        let ahead = |text: &str| Zone::parse(text).unwrap().offset(noon).as_mins();
        assert_eq!([ahead("+08:00"), ahead("-05:30"), ahead("Etc/GMT-8")], [480, -330, 480]);
    }

    #[test]
    fn names_with_an_offset_are_answered_with_the_right_zone() {
        let same = |name: &str| format!(", which is {name}: signs of Etc names are inverted");
        check_unknown("GMT+8", &format!("; for GMT+8 write +08:00{}", same("Etc/GMT-8")));
        check_unknown("utc 8", &format!("; for utc+8 write +08:00{}", same("Etc/GMT-8")));
        check_unknown("UTC-05:00", &format!("; for UTC-05:00 write -05:00{}", same("Etc/GMT+5")));
        assert!(Zone::parse("GMT+5:30").unwrap_err().ends_with("; for GMT+5:30 write +05:30"));
        assert!(Zone::parse("UTC+15").unwrap_err().ends_with("; for UTC+15 write +15:00"));
        for name in ["Etc/GMT 8", "Etc/GMT+08", "Etc/UTC+8"] {
            check_unknown(name, "Etc/GMT-8 is +08:00, Etc/GMT+8 is -08:00");
        }
    }
}
