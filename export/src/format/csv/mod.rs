//! Rows as CSV: UTF-8 without a byte order mark, LF line endings, quotes only where necessary.

mod catalogue_cells;
pub(crate) mod cell;
mod column_plan;

use attribution::facts::event::{EventTime, Pid, TouchKind};
use attribution::rules::policy::Policy;
use store::layout::codec::row::{ContributorView, RowView, TextCell};
use store::layout::key::RowKey;

use crate::format::columns::field::Field;
use crate::format::columns::native::{Column, ContributorPart};
use crate::format::columns::prop::PropValues;
use crate::format::columns::value::Value;
use crate::format::time::writer::{TimeForm, TimeWriter};
use crate::format::time::zone::Zone;
use crate::query::{ExportQuery, Preset};
use catalogue_cells::{AppCells, CampaignCells};
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
    props: PropValues,
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
            props: PropValues::new(fields),
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
        self.props.read(row);
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
            Step::Prop(index) => write_text(self.props.get(*index), out),
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
        contributor: &ContributorView,
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
mod tests;
