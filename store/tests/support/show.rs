//! Rows as text.

use adtrail_store::layout::codec::row::{RowView, TextCell};
use adtrail_store::layout::key::RowKey;
use attribution::facts::event::TouchKind;
use attribution::rules::row::Contributor;

/// A row, in several degrees of detail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// What a person asks first: `a: install attributed c1 (click by oaid)`.
    pub short: String,
    /// All that was decided.
    pub decision: String,
    /// Cells about the touch and the activation, with bars between.
    pub details: String,
    /// Everything but the revision, which depends on the order in which facts came.
    pub whole: String,
}

/// Rows as they are stored.
pub fn show_all(rows: &[(RowKey, Vec<u8>)]) -> Vec<Shown> {
    rows.iter().map(|(key, value)| show(key, &RowView::decode(value).expect("a row"))).collect()
}

pub fn show(key: &RowKey, row: &RowView<'_>) -> Shown {
    let mut whole = row.clone();
    whole.revision = 0;
    let RowKey { pid, event_time, spreadid, seq, .. } = key;
    let texts = TextCell::ALL.map(|cell| row.text(cell));
    Shown {
        short: short(row),
        details: texts[TextCell::DETAILS as usize..].join("|"),
        decision: decision(key, row),
        whole: format!(
            "{} {} {} {seq} {texts:?} {whole:?}",
            pid.0,
            event_time.millis(),
            spreadid.0
        ),
    }
}

fn short(row: &RowView<'_>) -> String {
    let id = row.text(TextCell::EventId);
    let of = row.text(TextCell::ActivationId);
    let mut text = format!("{id}:");
    if let Some(install_type) = row.install_type {
        text += &format!(" {}", install_type.name());
    }
    text += &format!(" {}", row.status.name());
    if let (Some(kind), Some(match_type)) = (row.touch_kind, row.match_type) {
        let click_id = row.text(TextCell::ClickId);
        text += &format!(" {click_id} ({} by {})", kind.name(), match_type.name());
    }
    if !of.is_empty() && of != id {
        text += &format!(" of {of}");
    }
    for Contributor { spreadid, kind, match_type, .. } in contributors(row) {
        text += &format!(" + {} ({} by {})", spreadid.0, kind.name(), match_type.name());
    }
    if let Some(reason) = row.reject_reason {
        text += &format!(" because {}", reason.name());
    }
    text
}

fn decision(key: &RowKey, row: &RowView<'_>) -> String {
    let time = |time: Option<attribution::facts::event::EventTime>| {
        time.map_or("-".into(), |time| time.millis().to_string())
    };
    let contributors: Vec<_> = contributors(row)
        .map(|Contributor { spreadid, kind, time, match_type }| {
            let (kind, by) = (kind.name(), match_type.name());
            format!("{} {kind} @{} {by}", spreadid.0, time.millis())
        })
        .collect();
    format!(
        "{} @{} {} {} | {} {} {} | {} {} @{} {} | {} @{} | {} | {}",
        key.pid.0,
        key.event_time.millis(),
        row.event_type.name(),
        row.text(TextCell::EventId),
        row.status.name(),
        row.install_type.map_or("-", |install_type| install_type.name()),
        key.spreadid.0,
        row.touch_kind.map_or("-", TouchKind::name),
        row.text(TextCell::ClickId),
        time(row.touch_time),
        row.match_type.map_or("-", |match_type| match_type.name()),
        row.text(TextCell::ActivationId),
        time(row.activation_time),
        row.reject_reason.map_or("-", |reason| reason.name()),
        contributors.join(", "),
    )
}

fn contributors<'a>(row: &'a RowView<'_>) -> impl Iterator<Item = &'a Contributor> {
    (0..).map_while(|index| row.contributor(index))
}
