//! Rebuilds decided rows from stored ones, to compare them.

use attribution::facts::event::{Device, Pairs, value};
use attribution::rules::build_row;
use attribution::rules::row::{
    AD_PARAMS, ActivationDetails, ActivationRef, AdDetails, Contributor, CreditedTouch, EventType,
    Row, TouchDetails,
};
use attribution::rules::winner::{Credit, Decision};

use crate::layout::codec::row::{ContributorView, RowView, TextCell, encode};
use crate::layout::key::RowKey;

/// The row of a key and value; `None` if props or params are not JSON or a credited touch has no details.
pub fn row(key: &RowKey, view: &RowView<'_>) -> Option<Row> {
    let text = |cell| Box::<str>::from(view.text(cell));
    let touch = match view.touch_kind.zip(view.touch_time).zip(view.match_type) {
        Some(((kind, time), match_type)) => {
            let (click_id, details) = (text(TextCell::ClickId), Box::new(touch_details(view)?));
            Some(CreditedTouch { kind, time, click_id, match_type, details })
        }
        None => None,
    };
    Some(Row {
        pid: key.pid,
        event_time: key.event_time,
        spreadid: key.spreadid,
        seq: key.seq,
        revision: view.revision,
        event_type: view.event_type,
        event_name: text(TextCell::EventName),
        event_id: text(TextCell::EventId),
        status: view.status,
        install_type: view.install_type,
        touch,
        activation: view.activation_time.map(|time| ActivationRef {
            id: text(TextCell::ActivationId),
            time,
            details: ActivationDetails {
                install_begin_time: view.install_begin_time(),
                store: text(TextCell::InstallStore),
                credit_of: text(TextCell::CreditOf),
            },
        }),
        reject_reason: view.reject_reason,
        contributors: contributors(view)?,
        ids: [
            text(TextCell::Oaid),
            text(TextCell::Gaid),
            text(TextCell::Idfa),
            text(TextCell::Caid),
            text(TextCell::Idfv),
            text(TextCell::Imei),
            text(TextCell::AndroidId),
            text(TextCell::Mac),
        ],
        device: Device {
            ip: text(TextCell::Ip),
            ua: text(TextCell::Ua),
            model: text(TextCell::DeviceModel),
            os: text(TextCell::Os),
            os_version: text(TextCell::OsVersion),
        },
        app_version: text(TextCell::AppVersion),
        revenue: text(TextCell::Revenue),
        currency: text(TextCell::Currency),
        props: props(view.text(TextCell::Props))?,
    })
}

fn touch_details(view: &RowView<'_>) -> Option<TouchDetails> {
    const SUBS: [TextCell; 5] = [
        TextCell::TouchSub1,
        TextCell::TouchSub2,
        TextCell::TouchSub3,
        TextCell::TouchSub4,
        TextCell::TouchSub5,
    ];
    Some(TouchDetails {
        purpose: view.touch_purpose()?,
        lookback_ms: view.touch_lookback_ms()?,
        site: view.text(TextCell::TouchSite).into(),
        subs: SUBS.map(|cell| view.text(cell).into()),
        ad: AdDetails::non_empty(
            view.text(TextCell::TouchCallback).into(),
            TextCell::AD_PARAMS.map(|cell| view.text(cell).into()),
        ),
    })
}

fn contributors(view: &RowView<'_>) -> Option<Vec<Contributor>> {
    let contributor = |(index, [params, callback]): (usize, [TextCell; 2])| {
        let ContributorView { spreadid, kind, time, match_type } = *view.contributor(index)?;
        let callback = view.text(callback).into();
        let ad = |named: Pairs| {
            AdDetails::non_empty(callback, AD_PARAMS.map(|name| value(&named, name).into()))
        };
        let ad = props(view.text(params)).map(ad);
        Some(ad.map(|ad| Contributor { spreadid, kind, time, match_type, ad }))
    };
    TextCell::CONTRIBUTORS.into_iter().enumerate().map_while(contributor).collect()
}

fn props(json: &str) -> Option<Pairs> {
    if json.is_empty() {
        return Some(Pairs::new());
    }
    let serde_json::Value::Object(object) = serde_json::from_str(json).ok()? else { return None };
    let pair = |(key, value): (String, serde_json::Value)| match value {
        serde_json::Value::String(value) => Some((key.into(), value.into())),
        _ => None,
    };
    object.into_iter().map(pair).collect()
}

/// The digest of a row, which equals the one in its event's record if the row is the one that was decided.
pub fn digest(row: &Row, original: Option<&str>) -> u64 {
    let row = Row { revision: 0, ..row.clone() };
    match row.event_type {
        EventType::Activation => build_row::digest(&(&row, &original.map(Box::<str>::from))),
        EventType::Effect => build_row::digest(&row),
    }
}

/// The decision that the row of an activation shows.
pub fn decision(row: Row, original: Option<Box<str>>) -> Option<Decision> {
    Some(Decision { install_type: row.install_type?, original, credit: credit(row) })
}

/// The credit that a row shows.
pub fn credit(row: Row) -> Credit {
    Credit {
        status: row.status,
        spreadid: row.spreadid,
        reject_reason: row.reject_reason,
        touch: row.touch,
        contributors: row.contributors,
    }
}

/// True if the value is exactly the encoding of the row. The digest does not cover values that only the CSV writer
/// needs.
pub fn is_encoding_of(row: &Row, value: &[u8]) -> bool {
    let mut written = Vec::with_capacity(value.len());
    encode(row, &mut written);
    written == value
}
