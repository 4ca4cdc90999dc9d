//! Time zones by their IANA name.

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};

use config::nearest::nearest;

/// The names of UTC, each also with the prefix `Etc/`.
const UTC_NAMES: [&str; 4] = ["UTC", "UCT", "Universal", "Zulu"];

/// A time zone of the bundled IANA database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    pub(super) zone: TimeZone,
    name: Box<str>,
}

impl Zone {
    pub fn utc() -> Self {
        Self { zone: TimeZone::UTC, name: "UTC".into() }
    }

    /// Parses an IANA name, ignoring case.
    ///
    /// # Errors
    /// No zone has this name; the error is the nearest name.
    pub fn parse(name: &str) -> Result<Self, String> {
        let zones = TimeZoneDatabase::bundled();
        let found = zones.get(name).ok().filter(|zone| !zone.is_unknown());
        let Some(zone) = found else {
            let names: Vec<String> = zones.available().map(|name| name.to_string()).collect();
            // Many people know their zone by its city.
            let city = names.iter().find(|known| {
                known.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(name))
            });
            let nearest = || nearest(name, names.iter().map(String::as_str));
            return Err(city.map(String::as_str).or_else(nearest).unwrap_or_default().into());
        };
        let name: Box<str> = zone.iana_name().unwrap_or(name).into();
        // All names of UTC are one zone, which is written with `Z`.
        let is_utc = UTC_NAMES.contains(&name.strip_prefix("Etc/").unwrap_or(&name));
        Ok(if is_utc { Self::utc() } else { Self { zone, name } })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_unknown(name: &str, nearest: &str) {
        assert_eq!(Zone::parse(name), Err(nearest.into()));
    }

    #[test]
    fn zones_have_iana_names() {
        assert_eq!(Zone::parse("asia/shanghai").unwrap().name(), "Asia/Shanghai");
        for name in ["utc", "Etc/UTC", "zulu", "etc/uct", "Universal"] {
            assert_eq!(Zone::parse(name).unwrap(), Zone::utc(), "{name}");
        }
        assert_eq!(Zone::parse("Etc/GMT").unwrap().name(), "Etc/GMT");
        check_unknown("Asia/Shangai", "Asia/Shanghai");
        check_unknown("Europe/Berlim", "Europe/Berlin");
        check_unknown("shanghai", "Asia/Shanghai");
        check_unknown("Etc/Unknown", "Etc/UCT");
    }
}
