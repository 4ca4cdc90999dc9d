//! Rows as CSV, cell by cell.

use attribution::facts::event::{Device, SpreadId};
use attribution::rules::policy::{AppPolicy, Campaign, Windows};
use attribution::rules::row::{Contributor, EventType, MatchType, RejectReason, Row, Status};
use proptest::prelude::*;
use store::layout::codec;

use super::*;
use crate::query::Format;

fn at(millis: i64) -> EventTime {
    EventTime::from_millis(millis).unwrap()
}

fn row(spreadid: u32) -> Row {
    Row {
        pid: Pid(1),
        event_time: at(0),
        spreadid: SpreadId(spreadid),
        seq: 9,
        revision: 0,
        event_type: EventType::Effect,
        event_name: "".into(),
        event_id: "".into(),
        status: Status::Rejected,
        install_type: None,
        touch: None,
        activation: None,
        reject_reason: Some(RejectReason::Blocked),
        contributors: vec![],
        ids: Default::default(),
        device: Device::default(),
        app_version: "".into(),
        revenue: "".into(),
        currency: "".into(),
        props: vec![],
    }
}

fn policy(campaign: &str, channel: &str) -> Policy {
    let campaign = Campaign {
        spreadid: SpreadId(7),
        pid: Pid(1),
        channel: channel.into(),
        name: campaign.into(),
        windows: Windows::default(),
    };
    Policy::new(vec![AppPolicy::new(Pid(1), "app, x")], vec![campaign])
}

/// Returns the header and the row of these fields.
fn written(policy: &Policy, fields: &str, row: &Row) -> String {
    let parameters = [("from", "1970-01-01"), ("to", "1970-01-01"), ("fields", fields)];
    let query = ExportQuery::parse(Format::Csv, parameters).unwrap();
    let mut writer = CsvWriter::new(&query, policy);
    let (mut value, mut out) = (Vec::new(), Vec::new());
    writer.header(&mut out);
    codec::row::encode(row, &mut value);
    let (spreadid, seq) = (row.spreadid, row.seq);
    let key = RowKey { partition: 0, pid: row.pid, event_time: row.event_time, spreadid, seq };
    writer.row(&key, &RowView::decode(&value).unwrap(), &mut out);
    String::from_utf8(out).unwrap()
}

#[track_caller]
fn check(fields: &str, row: &Row, expected: &str) {
    let written = written(&policy("Spring, \"26\"", "toutiao"), fields, row);
    assert_eq!(written, format!("{fields}\n{expected}\n"));
}

#[test]
fn only_necessary_quotes_are_written() {
    for (name, expected) in [
        ("plain text; '=1+1' \t \u{fc}", "plain text; '=1+1' \t \u{fc}"),
        ("a,b", "\"a,b\""),
        ("say \"hi\"", "\"say \"\"hi\"\"\""),
        ("a\nb", "\"a\nb\""),
        ("a\rb", "\"a\rb\""),
        ("", ""),
    ] {
        let row = Row { event_name: name.into(), ..row(0) };
        check("event_name,pid", &row, &format!("{expected},1"));
    }
}

#[test]
fn names_come_from_the_catalogue() {
    check("spreadid,campaign,channel", &row(7), "7,\"Spring, \"\"26\"\"\",toutiao");
    check("spreadid,campaign,channel", &row(8), "8,,unknown");
    check("spreadid,campaign,channel", &row(0), "0,,");
    check("app,pid", &row(0), "\"app, x\",1");
    // A campaign of another app.
    let other = Row { pid: Pid(2), ..row(7) };
    check("app,pid,spreadid,campaign,channel", &other, ",2,7,,unknown");
}

#[test]
fn contributors_have_their_columns() {
    let contributor = |spreadid, kind| Contributor {
        spreadid: SpreadId(spreadid),
        kind,
        time: at(1),
        match_type: MatchType::IpUa,
        ad: None,
    };
    let contributors =
        vec![contributor(7, TouchKind::Impression), contributor(u32::MAX, TouchKind::Click)];
    check(
        "contributor1_spreadid,contributor1_channel,contributor1_touch_type,\
         contributor2_spreadid,contributor2_channel,contributor2_touch_time,\
         contributor2_match_type,contributor3_spreadid,reject_reason",
        &Row { contributors, ..row(0) },
        "7,toutiao,impression,4294967295,unknown,1970-01-01T00:00:00.001Z,ip_ua,,blocked",
    );
}

#[test]
fn props_are_columns_by_their_names() {
    let pair = |key: &str, value: &str| (Box::from(key), Box::from(value));
    let props = vec![pair("a\"b", "1"), pair("level", "3, \"hard\"\n"), pair("x", "")];
    let with = Row { props, ..row(0) };
    check("props.level,pid,props.x", &with, "\"3, \"\"hard\"\"\n\",1,");
    check("pid,props.lev,props.Level", &with, "1,,");
    check("props.level", &row(0), "\"\"");
    let written = written(&policy("", ""), "props.a\"b,pid", &with);
    assert_eq!(written, "\"props.a\"\"b\",pid\n1,1\n");
}

#[test]
fn a_single_empty_cell_is_quoted() {
    check("campaign", &row(0), "\"\"");
    check("campaign,channel", &row(0), ",");
}

/// Texts that CSV writers and readers get wrong, and any others.
fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[,\"\r\n a\u{feff}é]{0,6}", any::<String>()]
}

proptest! {
    #[test]
    fn readers_find_every_cell(
        [name, id, ua, model, campaign, channel, revenue] in std::array::from_fn(|_| text()),
        columns in 1..=7usize,
    ) {
        const FIELDS: [&str; 7] =
            ["event_name", "event_id", "ua", "device_model", "campaign", "channel", "revenue"];
        let row = Row {
            event_name: name.as_str().into(),
            event_id: id.as_str().into(),
            device: Device { ua: ua.as_str().into(), model: model.as_str().into(), ..Device::default() },
            revenue: revenue.as_str().into(),
            ..row(7)
        };
        let policy = policy(&campaign, &channel);
        let written = written(&policy, &FIELDS[..columns].join(","), &row);
        let cells = [name, id, ua, model, campaign, channel, revenue];
        let mut reader = csv::ReaderBuilder::new().from_reader(written.as_bytes());
        let records: Vec<_> = reader.records().map(Result::unwrap).collect();
        prop_assert_eq!(records.len(), 1);
        prop_assert_eq!(records[0].iter().collect::<Vec<_>>(), &cells[..columns]);

        // Another writer writes the same.
        let mut writer = csv::WriterBuilder::new().from_writer(Vec::new());
        writer.write_record(&FIELDS[..columns]).unwrap();
        writer.write_record(&cells[..columns]).unwrap();
        prop_assert_eq!(written.as_bytes(), writer.into_inner().unwrap());
    }
}
