//! `adtrail replay-dlq`: sends dead letters to their source topics again, each once.

use anyhow::Context;
use config::Kafka;
use ingest::dead_letters::replay::{Replay, Report};
use ingest::decode::ErrorCode;
use ingest::{DEAD_LETTER_SUFFIX, TopicKind, TopicNames};

use super::{UsageError, load_for_kafka, print};
use crate::cli::ReplayDlq;
use crate::telemetry;
use crate::timing::Timing;

const BAR: &str = "{wide_bar} {human_pos} of {human_len} letters, {eta} left";

pub fn run(options: &ReplayDlq, timing: Timing) -> anyhow::Result<()> {
    let config = load_for_kafka(&options.settings)?;
    let kafka = &config.kafka;
    require_dead_letter_topic(kafka, &options.topic)?;
    let codes: Vec<_> = options.filter.iter().map(|name| code(name)).collect::<Result<_, _>>()?;
    let (topic, dry_run) = (&*options.topic, options.dry_run);
    let replay = Replay { kafka, topic, codes: &codes, dry_run, timing: timing.ingest };
    let bar = telemetry::bar(None, BAR);
    let mut report = Report::default();
    let outcome =
        replay.run(&mut report, |extent| telemetry::set_progress(&bar, extent.read, extent.total));
    drop(bar);
    // After a failure, too, the letters that were sent are reported.
    print(&table(&report, &TopicNames::new(&kafka.topics), dry_run)?)?;
    outcome.with_context(|| format!("dead letters of {topic}"))
}

/// Checks that the topic is one of dead letters. Users easily confuse it with the source topic.
fn require_dead_letter_topic(kafka: &Kafka, topic: &str) -> Result<(), UsageError> {
    let source = match TopicNames::new(&kafka.topics).kind(topic) {
        Some(_) => topic,
        None if !topic.ends_with(DEAD_LETTER_SUFFIX) => &kafka.topics.clicks,
        None => return Ok(()),
    };
    Err(UsageError(format!(
        "TOPIC: expected a topic of dead letters, such as {source}{DEAD_LETTER_SUFFIX}: {topic:?}"
    )))
}

fn code(name: &str) -> Result<ErrorCode, UsageError> {
    ErrorCode::from_name(name).ok_or_else(|| {
        let known = ErrorCode::ALL.map(ErrorCode::name).join(", ");
        UsageError(format!("--filter: expected one of {known}: {name:?}"))
    })
}

fn table(report: &Report, names: &TopicNames, dry_run: bool) -> anyhow::Result<Vec<u8>> {
    let mut table = csv::Writer::from_writer(Vec::new());
    let sent = if dry_run { "would_send" } else { "sent" };
    table.write_record([
        "code",
        "topic",
        "letters",
        sent,
        "sent_before",
        "repeated",
        "filtered",
        "left",
    ])?;
    for ((code, topic), counts) in &report.counts {
        let parts = [counts.sent, counts.sent_before, counts.repeated, counts.filtered, 0];
        table.write_record(line(code, Some((*topic, names)), parts))?;
    }
    let skipped = report.skipped.values().sum();
    if skipped > 0 {
        table.write_record(line("", None, [0, 0, 0, 0, skipped]))?;
    }
    Ok(table.into_inner()?)
}

fn line(code: &str, topic: Option<(TopicKind, &TopicNames)>, parts: [u64; 5]) -> Vec<String> {
    let topic = topic.map_or("", |(kind, names)| names.of(kind)).to_owned();
    let letters = parts.iter().sum::<u64>();
    [code.to_owned(), topic, letters.to_string()]
        .into_iter()
        .chain(parts.map(|count| count.to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
    use ingest::dead_letters::replay::{Counts, SkipReason};

    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_code_and_topic() {
        let names = TopicNames::from_fn(|topic| topic.setting().into());
        let counts = Counts { sent: 1, sent_before: 2, repeated: 3, filtered: 4 };
        let report = Report {
            counts: [(("bad_value".to_owned(), TopicKind::Clicks), counts)].into(),
            skipped: [(SkipReason::NotADeadLetter, 5), (SkipReason::OtherTopic, 6)].into(),
        };
        let shown = |dry_run| String::from_utf8(table(&report, &names, dry_run).unwrap()).unwrap();
        assert_eq!(
            shown(false),
            "code,topic,letters,sent,sent_before,repeated,filtered,left\n\
             bad_value,kafka.clicks,10,1,2,3,4,0\n,,11,0,0,0,0,11\n"
        );
        assert!(shown(true).starts_with("code,topic,letters,would_send,"));
    }
}
