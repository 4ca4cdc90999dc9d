//! Whether two names are of one time zone.

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::time_zone::Zone;

/// Whether times are written the same by both names, at every time from 1970 on, as by `PRC` and
/// `Asia/Shanghai`: a file in one zone is byte for byte the file in the other. A name that no zone has
/// is of none.
pub fn is_same_zone(one: &str, other: &str) -> bool {
    let (Ok(one), Ok(other)) = (Zone::parse(one), Zone::parse(other)) else { return false };
    // That of UTC has a `Z` for its offset, and no other has.
    let has_z = |zone: &Zone| *zone == Zone::utc();
    one == other || (has_z(&one) == has_z(&other) && has_same_offsets(&one, &other))
}

fn has_same_offsets(one: &Zone, other: &Zone) -> bool {
    let zone = |zone: &Zone| TimeZoneDatabase::bundled().get(zone.name()).ok();
    zone(one).zip(zone(other)).is_some_and(|(one, other)| offsets(&one).eq(offsets(&other)))
}

/// Each with the time that it begins at, and that of 1970.
fn offsets(zone: &TimeZone) -> impl Iterator<Item = (Timestamp, i32)> {
    let mut before = zone.to_offset(Timestamp::UNIX_EPOCH).seconds();
    let changes = zone.following(Timestamp::UNIX_EPOCH);
    let changes = changes.map(|change| (change.timestamp(), change.offset().seconds()));
    // A change of the zone's abbreviation alone is none.
    let changes =
        changes.filter(move |(_, offset)| std::mem::replace(&mut before, *offset) != *offset);
    [(Timestamp::UNIX_EPOCH, zone.to_offset(Timestamp::UNIX_EPOCH).seconds())]
        .into_iter()
        .chain(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_one_zone_or_of_two() {
        let check = |one, other, expected| {
            assert_eq!(is_same_zone(one, other), expected, "{one} {other}");
            assert_eq!(is_same_zone(other, one), expected, "{other} {one}");
        };
        for name in ["Etc/UTC", "Etc/UCT", "Zulu", "utc"] {
            check("UTC", name, true);
        }
        // As +00:00.
        check("UTC", "Etc/GMT", false);
        check("GMT", "Etc/GMT+0", true);
        check("Asia/Shanghai", "PRC", true);
        check("Asia/Calcutta", "Asia/Kolkata", true);
        check("America/New_York", "US/Eastern", true);
        check("Asia/Shanghai", "Asia/Singapore", false);
        check("UTC", "Europe/London", false);
        // For some years they were the same.
        check("Europe/Berlin", "Europe/Paris", false);
        check("America/New_York", "America/Toronto", false);
        check("UTC", "Etc/GMT-1", false);
        check("UTC", "Mars/Base", false);
        check("Mars/Base", "Mars/Base", false);
    }
}
