//! Rows as CSV: UTF-8 without a byte order mark, LF line endings, quotes only where necessary.

pub(crate) mod catalog_cells;
pub(crate) mod cell;
pub(crate) mod column_plan;

use attribution::facts::event::{EventTime, Pid, TouchKind};
use attribution::rules::policy::Policy;
use attribution::rules::row::Contributor;
use store::layout::codec::row::{RowView, TextCell};
use store::layout::key::RowKey;

use crate::format::columns::field::Field;
use crate::format::columns::native::{Column, ContributorPart};
use crate::format::columns::prop::prop;
use crate::format::columns::value::Value;
use crate::format::time::writer::{TimeForm, TimeWriter};
use crate::format::time::zone::Zone;
use crate::query::{ExportQuery, Preset};
use catalog_cells::{AppCells, CampaignCells};
use cell::{write_bytes, write_commas, write_quoted, write_text};
use column_plan::{Step, steps};

/// Writes rows of any app of the policy, with its current names of campaigns and channels.
#[derive(Debug)]
pub struct CsvWriter<'a> {
    fields: &'a [Field],
    steps: Vec<Step>,
    times: TimeWriter,
    policy: &'a Policy,
    campaigns: CampaignCells<'a>,
    apps: AppCells<'a>,
}

impl<'a> CsvWriter<'a> {
    pub fn new(query: &'a ExportQuery, policy: &'a Policy) -> Self {
        let form = match query.preset {
            Preset::Native => TimeForm::Rfc3339,
            Preset::AppsFlyer => TimeForm::Plain,
        };
        Self::of(&query.fields, TimeWriter::in_form(&query.zone, form), policy)
    }

    /// Returns a writer of single cells, in UTC.
    pub fn for_cells(policy: &'a Policy) -> Self {
        Self::of(&[], TimeWriter::new(&Zone::utc()), policy)
    }

    fn of(fields: &'a [Field], times: TimeWriter, policy: &'a Policy) -> Self {
        Self {
            fields,
            steps: steps(fields),
            times,
            policy,
            campaigns: CampaignCells::new(policy),
            apps: AppCells::new(policy),
        }
    }

    /// Appends the header line.
    pub fn header(&self, out: &mut Vec<u8>) {
        for (index, field) in self.fields.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            write_text(&field.name(), out);
        }
        out.push(b'\n');
    }

    /// Appends the line of a row.
    pub fn row(&mut self, key: &RowKey, row: &RowView<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        for index in 0..self.steps.len() {
            self.step(index, key, row, out);
        }
        // The last cell has no comma.
        out.pop();
        // Readers skip empty lines, so a single empty cell is quoted.
        if out.len() == start {
            out.extend_from_slice(b"\"\"");
        }
        out.push(b'\n');
    }

    /// Appends the cells of a step, each followed by a comma.
    #[inline]
    fn step(&mut self, index: usize, key: &RowKey, row: &RowView<'_>, out: &mut Vec<u8>) {
        match &self.steps[index] {
            Step::Column(column) => self.cell(*column, key, row, out),
            Step::Prop(name) => write_text(&prop(row.text(TextCell::Props), name), out),
            Step::Texts(first, last) => return write_texts(row, *first, *last, out),
            Step::Empty(count) => return write_commas(*count, out),
            Step::AppsFlyer(cell) => match cell.value(key, row, self.policy) {
                Value::Empty => {}
                Value::Name(name) => write_name(name, out),
                Value::Number(number) => write_text(&number.to_string(), out),
                Value::Time(time) => self.times.write(time, out),
                Value::Decimal(text) | Value::Json(text) => write_text(text, out),
                Value::Text(text) => write_text(&text, out),
            },
            Step::Contributor(index) => match row.contributor(*index) {
                None => return write_commas(ContributorPart::ALL.len(), out),
                Some(contributor) => {
                    for (index, part) in ContributorPart::ALL.into_iter().enumerate() {
                        if index > 0 {
                            out.push(b',');
                        }
                        self.contributor(key.pid, contributor, part, out);
                    }
                }
            },
        }
        out.push(b',');
    }

    /// Appends one cell of a row.
    #[inline]
    pub fn cell(&mut self, column: Column, key: &RowKey, row: &RowView<'_>, out: &mut Vec<u8>) {
        match column {
            Column::Text(cell) => write_stored(row, cell, out),
            Column::EventType => write_name(row.event_type.name(), out),
            Column::EventTime => self.times.write(key.event_time, out),
            Column::App => self.apps.of(key.pid).key.write(out),
            Column::Pid => self.apps.of(key.pid).pid.write(out),
            Column::Status => write_name(row.status.name(), out),
            Column::InstallType => write_name(row.install_type.map_or("", |kind| kind.name()), out),
            Column::SpreadId => self.campaigns.of(key.pid, key.spreadid).spreadid.write(out),
            Column::Campaign => self.campaigns.of(key.pid, key.spreadid).name.write(out),
            Column::Channel => self.campaigns.of(key.pid, key.spreadid).channel.write(out),
            Column::MatchType => write_name(row.match_type.map_or("", |kind| kind.name()), out),
            Column::TouchType => write_name(row.touch_kind.map_or("", TouchKind::name), out),
            Column::TouchTime => self.time(row.touch_time, out),
            Column::ActivationTime => self.time(row.activation_time, out),
            Column::InstallBeginTime => self.time(row.install_begin_time(), out),
            Column::RejectReason => {
                write_name(row.reject_reason.map_or("", |reason| reason.name()), out);
            }
            Column::Contributor(index, part) => {
                if let Some(contributor) = row.contributor(index) {
                    self.contributor(key.pid, contributor, part, out);
                }
            }
        }
    }

    #[inline]
    fn time(&mut self, time: Option<EventTime>, out: &mut Vec<u8>) {
        time.into_iter().for_each(|time| self.times.write(time, out));
    }

    fn contributor(
        &mut self,
        pid: Pid,
        contributor: &Contributor,
        part: ContributorPart,
        out: &mut Vec<u8>,
    ) {
        let campaign = self.campaigns.of(pid, contributor.spreadid);
        match part {
            ContributorPart::SpreadId => campaign.spreadid.write(out),
            ContributorPart::Channel => campaign.channel.write(out),
            ContributorPart::TouchType => write_name(contributor.kind.name(), out),
            ContributorPart::TouchTime => self.times.write(contributor.time, out),
            ContributorPart::MatchType => write_name(contributor.match_type.name(), out),
        }
    }
}

/// Appends a name defined by adtrail, which needs no quotes.
fn write_name(name: &'static str, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
}

/// Appends a stored text; the row knows whether it needs quotes.
#[inline]
fn write_stored(row: &RowView<'_>, cell: TextCell, out: &mut Vec<u8>) {
    let (bytes, len) = row.bytes(cell);
    if row.must_quote(cell) {
        write_quoted(bytes.get(..len).unwrap_or_default(), out);
    } else {
        write_bytes(bytes, len, out);
    }
}

/// Appends consecutive stored texts, each followed by a comma.
#[inline]
fn write_texts(row: &RowView<'_>, first: TextCell, last: TextCell, out: &mut Vec<u8>) {
    let mut ended = first as usize;
    for cell in row.texts_between(first, last) {
        write_commas(cell as usize - ended, out);
        write_stored(row, cell, out);
        ended = cell as usize;
    }
    write_commas(last as usize + 1 - ended, out);
}

#[cfg(test)]
mod tests {
    use attribution::facts::event::{Device, EventTime, SpreadId};
    use attribution::rules::policy::{AppPolicy, Campaign, Windows};
    use attribution::rules::row::{EventType, MatchType, RejectReason, Row, Status};
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

    #[track_caller]
    fn check_name(name: &str, expected: &str) {
        check(
            "event_name,pid",
            &Row { event_name: name.into(), ..row(0) },
            &format!("{expected},1"),
        );
    }

    #[test]
    fn only_necessary_quotes_are_written() {
        check_name("plain text; '=1+1' \t ü", "plain text; '=1+1' \t ü");
        check_name("a,b", "\"a,b\"");
        check_name("\"", "\"\"\"\"");
        check_name("say \"hi\"", "\"say \"\"hi\"\"\"");
        check_name("a\nb", "\"a\nb\"");
        check_name("a\rb", "\"a\rb\"");
        check_name("", "");
        check("app,pid", &row(0), "\"app, x\",1");
    }

    #[test]
    fn names_come_from_the_catalog() {
        check("spreadid,campaign,channel", &row(7), "7,\"Spring, \"\"26\"\"\",toutiao");
        check("spreadid,campaign,channel", &row(8), "8,,unknown");
        check("spreadid,campaign,channel", &row(0), "0,,");
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
}
