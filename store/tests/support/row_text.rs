//! Formats rows as text.

use adtrail_store::layout::codec::row::{RowView, TextCell};
use adtrail_store::layout::key::RowKey;
use attribution::facts::event::TouchKind;
use attribution::rules::row::Contributor;

/// A row as text, in several degrees of detail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowText {
    /// Class, status and credit: `a: install attributed c1 (click by oaid)`.
    pub short: String,
    /// The whole decision.
    pub decision: String,
    /// Cells about the touch and the activation, separated by `|`.
    pub details: String,
    /// All columns except the revision, which depends on the order of arrival.
    pub whole: String,
}

/// Formats stored rows.
pub fn row_texts(rows: &[(RowKey, Vec<u8>)]) -> Vec<RowText> {
    rows.iter()
        .map(|(key, value)| row_text(key, &RowView::decode(value).expect("a valid row")))
        .collect()
}

pub fn row_text(key: &RowKey, row: &RowView<'_>) -> RowText {
    let mut whole = row.clone();
    whole.revision = 0;
    let RowKey { pid, event_time, spreadid, seq, .. } = key;
    let texts = TextCell::ALL.map(|cell| row.text(cell));
    RowText {
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
    let activation_id = row.text(TextCell::ActivationId);
    let mut text = format!("{id}:");
    if let Some(install_type) = row.install_type {
        text += &format!(" {}", install_type.name());
    }
    text += &format!(" {}", row.status.name());
    if let (Some(kind), Some(match_type)) = (row.touch_kind, row.match_type) {
        let click_id = row.text(TextCell::ClickId);
        text += &format!(" {click_id} ({} by {})", kind.name(), match_type.name());
    }
    if !activation_id.is_empty() && activation_id != id {
        text += &format!(" of {activation_id}");
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
