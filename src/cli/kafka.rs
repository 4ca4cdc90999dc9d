//! Options of the commands that read topics.

use clap::Args;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::Settings;

#[derive(Debug, Args)]
pub struct Peek {
    #[command(flatten)]
    pub settings: Settings,

    /// Topic to read: of events, of dead letters, or any other
    #[arg(value_name = "TOPIC", value_parser = topic)]
    pub topic: String,

    /// Only records produced from now on; waits for them until interrupted
    #[arg(long, conflicts_with = "from_time")]
    pub at_end: bool,

    /// Only records that the broker received at this time or later: an RFC 3339 instant, or a date or date-time in UTC
    #[arg(long, value_name = "TIME", value_parser = instant_ms)]
    pub from_time: Option<i64>,

    /// Stop after N records
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,

    /// Show the original value and the headers instead of the event
    #[arg(long)]
    pub raw: bool,
}

#[derive(Debug, Args)]
pub struct ReplayDlq {
    #[command(flatten)]
    pub settings: Settings,

    /// Topic of dead letters, such as adtrail.clicks.dlq
    #[arg(value_name = "TOPIC", value_parser = topic)]
    pub topic: String,

    /// Only dead letters with this adtrail.error.code; repeatable
    #[arg(long, value_name = "CODE")]
    pub filter: Vec<String>,

    /// Count what would be sent, without sending
    #[arg(long)]
    pub dry_run: bool,
}

fn instant_ms(text: &str) -> Result<i64, String> {
    let instant = text.parse::<Timestamp>().or_else(|_| {
        let local = text.parse::<DateTime>()?;
        local.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp())
    });
    let expected = "expected an RFC 3339 instant such as 2026-03-10T08:00:00Z, or a date or date-time such as \
                    2026-03-10T08:00 in UTC";
    let millis = instant.map(Timestamp::as_millisecond).map_err(|_| expected.to_owned())?;
    if millis < 0 { Err("expected a time from 1970 on".to_owned()) } else { Ok(millis) }
}

/// Parses a topic name by Kafka's rules.
fn topic(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let is_name = (1..=249).contains(&text.len())
        && text.chars().all(is_allowed)
        && !matches!(text, "." | "..");
    let expected = "expected a topic name of 1 to 249 of a-z, A-Z, 0-9, '.', '_', '-'";
    if is_name { Ok(text.to_owned()) } else { Err(expected.to_owned()) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_time_without_an_offset_is_in_utc() {
        let check = |text: &str, expected: Option<i64>| {
            assert_eq!(super::instant_ms(text).ok(), expected, "{text}");
        };
        check("2025-03-10T12:00:00Z", Some(1_741_608_000_000));
        check("2025-03-10T20:00:00.001+08:00", Some(1_741_608_000_001));
        check("2025-03-10T12:00", Some(1_741_608_000_000));
        check("2025-03-10", Some(1_741_564_800_000));
        check("1969-12-31T23:59:59.999Z", None);
        check("yesterday", None);
        check("", None);
    }
}
