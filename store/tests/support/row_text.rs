//! Formats rows as text.

use std::collections::BTreeMap;

use adtrail_store::layout::codec::row::{ContributorView, RowView, TextCell};
use adtrail_store::layout::key::RowKey;
use attribution::facts::event::TouchKind;
use attribution::rules::row::AD_PARAMS;

/// A row as text, in several degrees of detail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowText {
    /// Class, status and credit: `a: install attributed c1 (click by oaid)`.
    pub short: String,
    /// The whole decision.
    pub decision: String,
    /// Cells about the touch and the activation, separated by `|`.
    pub details: String,
    /// What is known of the ads: of the touch, then of each contributor, in the form of [`ad_text`].
    pub ads: Vec<String>,
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
        details: texts[TextCell::DETAILS as usize..TextCell::TouchCallback as usize].join("|"),
        ads: ads(row),
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
    for ContributorView { spreadid, kind, match_type, .. } in contributors(row) {
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
    let all = ads(row);
    let [ad, others @ ..] = all.as_slice() else { panic!("the first is that of the touch") };
    let contributors: Vec<_> = contributors(row)
        .zip(others)
        .map(|(ContributorView { spreadid, kind, time, match_type }, ad)| {
            let (kind, by) = (kind.name(), match_type.name());
            format!("{} {kind} @{} {by}{ad}", spreadid.0, time.millis())
        })
        .collect();
    format!(
        "{} @{} {} {} | {} {} {} | {} {} @{} {}{ad} | {} @{} | {} | {}",
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

fn contributors<'a>(row: &'a RowView<'_>) -> impl Iterator<Item = &'a ContributorView> {
    (0..).map_while(|index| row.contributor(index))
}

fn ads(row: &RowView<'_>) -> Vec<String> {
    let params = AD_PARAMS.into_iter().zip(TextCell::AD_PARAMS.map(|cell| row.text(cell)));
    let mut ads = vec![ad_text(row.text(TextCell::TouchCallback), params)];
    for ([params, callback], _) in TextCell::CONTRIBUTORS.into_iter().zip(contributors(row)) {
        let json = Some(row.text(params)).filter(|json| !json.is_empty()).unwrap_or("{}");
        let params: BTreeMap<&str, String> = serde_json::from_str(json).expect("params are JSON");
        let params = params.iter().map(|(name, value)| (*name, value.as_str()));
        ads.push(ad_text(row.text(callback), params));
    }
    ads
}

/// Formats what is known of an ad, such as ` {callback=t adset_id=3}`; empty if nothing is.
pub fn ad_text<'a>(
    callback: &'a str,
    params: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let all = std::iter::once(("callback", callback)).chain(params);
    let known = all.filter(|(_, value)| !value.is_empty());
    let known: Vec<_> = known.map(|(name, value)| format!("{name}={value}")).collect();
    if known.is_empty() { String::new() } else { format!(" {{{}}}", known.join(" ")) }
}
