//! AppsFlyer's columns, in the order on which clients rely.

use std::borrow::Cow;

use attribution::facts::event::Purpose;
use attribution::rules::policy::{DAY_MS, HOUR_MS, Policy};
use attribution::rules::row::{EventType, InstallType, Status};
use store::layout::codec::row::{RowView, TextCell};
use store::layout::key::RowKey;

use crate::format::columns::channel::channel_name;
use crate::format::columns::native::{Column, ContributorPart};
use crate::format::columns::value::Value;

/// A column with its heading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadedColumn {
    pub heading: Cow<'static, str>,
    pub cell: Cell,
}

/// The source of a cell's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// No value: adtrail does not know it.
    Unknown,
    /// The value of a native column.
    Native(Column),
    EventName,
    EventValue,
    RevenueUsd,
    MediaSource,
    CampaignId,
    /// Campaign of the contributor at this index.
    ContributorCampaign(usize),
    Ad,
    AdId,
    Platform,
    AppName,
    IsRetargeting,
    RetargetingConversion,
    Lookback,
    IsPrimary,
    ConversionType,
    CampaignType,
}

const fn text(cell: TextCell) -> Cell {
    Cell::Native(Column::Text(cell))
}

const fn contributor(index: usize, part: ContributorPart) -> Cell {
    Cell::Native(Column::Contributor(index, part))
}

const fn match_type(index: usize) -> Cell {
    contributor(index, ContributorPart::MatchType)
}

/// The headings of every file, in order.
const HEADINGS: &str = include_str!("headings.txt");

/// The columns of [`HEADINGS`] for which adtrail has values.
const KNOWN: [(&str, Cell); 53] = [
    ("Attributed Touch Type", Cell::Native(Column::TouchType)),
    ("Attributed Touch Time", Cell::Native(Column::TouchTime)),
    ("Install Time", Cell::Native(Column::ActivationTime)),
    ("Event Time", Cell::Native(Column::EventTime)),
    ("Event Name", Cell::EventName),
    ("Event Value", Cell::EventValue),
    ("Event Revenue", text(TextCell::Revenue)),
    ("Event Revenue Currency", text(TextCell::Currency)),
    ("Event Revenue USD", Cell::RevenueUsd),
    ("Media Source", Cell::MediaSource),
    ("Channel", text(TextCell::TouchChannel)),
    ("Campaign", Cell::Native(Column::Campaign)),
    ("Campaign ID", Cell::CampaignId),
    ("Adset", text(TextCell::TouchAdsetName)),
    ("Adset ID", text(TextCell::TouchAdsetId)),
    ("Ad", Cell::Ad),
    ("Ad ID", Cell::AdId),
    ("Site ID", text(TextCell::TouchSite)),
    ("Sub Param 1", text(TextCell::TouchSub1)),
    ("Sub Param 2", text(TextCell::TouchSub2)),
    ("Sub Param 3", text(TextCell::TouchSub3)),
    ("Sub Param 4", text(TextCell::TouchSub4)),
    ("Sub Param 5", text(TextCell::TouchSub5)),
    ("Contributor 1 Media Source", contributor(0, ContributorPart::Channel)),
    ("Contributor 1 Campaign", Cell::ContributorCampaign(0)),
    ("Contributor 1 Touch Type", contributor(0, ContributorPart::TouchType)),
    ("Contributor 1 Touch Time", contributor(0, ContributorPart::TouchTime)),
    ("Contributor 2 Media Source", contributor(1, ContributorPart::Channel)),
    ("Contributor 2 Campaign", Cell::ContributorCampaign(1)),
    ("Contributor 2 Touch Type", contributor(1, ContributorPart::TouchType)),
    ("Contributor 2 Touch Time", contributor(1, ContributorPart::TouchTime)),
    ("Contributor 3 Media Source", contributor(2, ContributorPart::Channel)),
    ("Contributor 3 Campaign", Cell::ContributorCampaign(2)),
    ("Contributor 3 Touch Type", contributor(2, ContributorPart::TouchType)),
    ("Contributor 3 Touch Time", contributor(2, ContributorPart::TouchTime)),
    ("IP", text(TextCell::Ip)),
    ("AppsFlyer ID", text(TextCell::ActivationId)),
    ("Advertising ID", text(TextCell::Gaid)),
    ("IDFA", text(TextCell::Idfa)),
    ("Android ID", text(TextCell::AndroidId)),
    ("IMEI", text(TextCell::Imei)),
    ("IDFV", text(TextCell::Idfv)),
    ("Platform", Cell::Platform),
    ("Device Type", text(TextCell::DeviceModel)),
    ("OS Version", text(TextCell::OsVersion)),
    ("App Version", text(TextCell::AppVersion)),
    ("App ID", Cell::Native(Column::App)),
    ("App Name", Cell::AppName),
    ("Is Retargeting", Cell::IsRetargeting),
    ("Retargeting Conversion Type", Cell::RetargetingConversion),
    ("Attribution Lookback", Cell::Lookback),
    ("Is Primary Attribution", Cell::IsPrimary),
    ("User Agent", text(TextCell::Ua)),
];

/// Returns the columns of every file.
pub(super) fn columns() -> impl Iterator<Item = (&'static str, Cell)> {
    HEADINGS.trim_end().split(',').map(|heading| {
        let known = KNOWN.iter().find(|(known, _)| *known == heading);
        (heading, known.map_or(Cell::Unknown, |(_, cell)| *cell))
    })
}

/// Additional columns: parameter value, heading, cell.
pub(super) const ADDITIONAL: [(&str, &str, Cell); 22] = [
    ("device_model", "Device Model", text(TextCell::DeviceModel)),
    ("keyword_id", "Keyword ID", Cell::Unknown),
    ("store_reinstall", "Store Reinstall", Cell::Unknown),
    ("deeplink_url", "Deeplink URL", Cell::Unknown),
    ("oaid", "OAID", text(TextCell::Oaid)),
    ("install_app_store", "Install App Store", text(TextCell::InstallStore)),
    ("contributor1_match_type", "Contributor 1 Match Type", match_type(0)),
    ("contributor2_match_type", "Contributor 2 Match Type", match_type(1)),
    ("contributor3_match_type", "Contributor 3 Match Type", match_type(2)),
    ("match_type", "Match Type", Cell::Native(Column::MatchType)),
    ("device_category", "Device Category", Cell::Unknown),
    ("gp_referrer", "Google Play Referrer", Cell::Unknown),
    ("gp_click_time", "Google Play Click Time", Cell::Unknown),
    ("gp_install_begin", "Google Play Install Begin Time", Cell::Native(Column::InstallBeginTime)),
    ("amazon_aid", "Amazon Fire ID", Cell::Unknown),
    ("keyword_match_type", "Keyword Match Type", Cell::Unknown),
    ("att", "ATT", Cell::Unknown),
    ("conversion_type", "Conversion Type", Cell::ConversionType),
    ("campaign_type", "Campaign Type", Cell::CampaignType),
    ("is_lat", "Is LAT", Cell::Unknown),
    ("rejected_reason", "Rejected Reason", Cell::Native(Column::RejectReason)),
    ("blocked_reason", "Blocked Reason", Cell::Native(Column::RejectReason)),
];

/// Names of additional columns with a heading of their own; for others, the name is the heading.
#[cfg(test)]
pub fn additional_names() -> [&'static str; ADDITIONAL.len()] {
    ADDITIONAL.map(|(name, _, _)| name)
}

/// Checks whether a text is a heading of AppsFlyer, not an arbitrary additional name.
pub fn is_heading(text: &str) -> bool {
    columns().any(|(heading, _)| heading == text)
        || ADDITIONAL.iter().any(|(_, heading, _)| *heading == text)
}

/// Returns the media source of a row, as marketers call it.
pub fn media_source<'p>(key: &RowKey, row: &RowView<'_>, policy: &'p Policy) -> &'p str {
    match row.status {
        Status::Organic => ORGANIC,
        _ => channel_name(policy, key.pid, key.spreadid),
    }
}

/// The media source of organic rows.
pub const ORGANIC: &str = "organic";

/// Returns the name of an effect, or the class of an activation.
pub fn event_name<'a>(row: &RowView<'a>) -> &'a str {
    match row.event_type {
        EventType::Effect => row.text(TextCell::EventName),
        EventType::Activation => row.install_type.map_or("", InstallType::name),
    }
}

/// Checks whether the touch was for retargeting.
fn is_retargeting(row: &RowView<'_>) -> bool {
    row.touch_purpose() == Some(Purpose::Retargeting)
}

/// Checks whether the row is a reinstall credited to retargeting, or an effect of it.
pub fn is_reinstall(row: &RowView<'_>) -> bool {
    row.install_type == Some(InstallType::Reinstall)
        && row.text(TextCell::CreditOf).is_empty()
        && is_retargeting(row)
}

/// Returns the cells with name and id of the ad. Many networks name no ad below the ad group, but a creative.
fn ad(row: &RowView<'_>) -> (TextCell, TextCell) {
    let ad = (TextCell::TouchAdName, TextCell::TouchAdId);
    let creative = (TextCell::TouchCreativeName, TextCell::TouchCreativeId);
    let has_ad = !row.text(ad.0).is_empty() || !row.text(ad.1).is_empty();
    if has_ad { ad } else { creative }
}

/// Formats a lookback like `7d` or `24h`: in days if it is a whole number of two or more, else in the largest unit of
/// which it is a multiple.
fn lookback(ms: u64) -> String {
    match ms {
        _ if ms.is_multiple_of(DAY_MS) && ms > DAY_MS => format!("{}d", ms / DAY_MS),
        _ if ms.is_multiple_of(HOUR_MS) => format!("{}h", ms / HOUR_MS),
        _ if ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        _ if ms.is_multiple_of(1_000) => format!("{}s", ms / 1_000),
        _ => format!("{ms}ms"),
    }
}

impl Cell {
    /// Returns the value of the cell in a row.
    pub(crate) fn value<'a>(
        self,
        key: &RowKey,
        row: &RowView<'a>,
        policy: &'a Policy,
    ) -> Value<'a> {
        match self {
            Self::Unknown => Value::Empty,
            Self::Native(column) => Value::of_column(column, key, row, policy),
            Self::EventName => Value::text(event_name(row).into()),
            Self::EventValue => match row.text(TextCell::Props) {
                props if row.event_type == EventType::Effect && !props.is_empty() => {
                    Value::Json(props)
                }
                _ => Value::Name("null"),
            },
            Self::RevenueUsd if row.text(TextCell::Currency).eq_ignore_ascii_case("USD") => {
                Value::of_column(Column::Text(TextCell::Revenue), key, row, policy)
            }
            Self::RevenueUsd => Value::Empty,
            Self::MediaSource => Value::text(media_source(key, row, policy).into()),
            Self::CampaignId if key.spreadid.0 == 0 => Value::Empty,
            Self::CampaignId => Value::Number(key.spreadid.0),
            Self::ContributorCampaign(index) => {
                let spreadid = row.contributor(index).map(|contributor| contributor.spreadid);
                let campaign = spreadid.and_then(|spreadid| policy.campaign(key.pid, spreadid));
                Value::text(campaign.map_or("", |campaign| &campaign.name).into())
            }
            Self::Ad => Value::text(row.text(ad(row).0).into()),
            Self::AdId => Value::text(row.text(ad(row).1).into()),
            Self::Platform => Value::text(lower(row.text(TextCell::Os))),
            Self::AppName => Value::text(policy.app(key.pid).map_or("", |app| &app.name).into()),
            Self::IsRetargeting if is_retargeting(row) => Value::Name("true"),
            Self::IsRetargeting => Value::Name("false"),
            Self::RetargetingConversion if is_reinstall(row) => Value::Name("re-attribution"),
            Self::RetargetingConversion => Value::Empty,
            Self::Lookback => {
                Value::text(row.touch_lookback_ms().map(lookback).unwrap_or_default().into())
            }
            Self::IsPrimary => row.touch_kind.map_or(Value::Empty, |_| Value::Name("true")),
            Self::ConversionType => Value::name(match row.install_type {
                Some(InstallType::Duplicate) | None => None,
                Some(kind) => Some(kind.name()),
            }),
            Self::CampaignType => match (row.status, is_retargeting(row)) {
                (Status::Organic, _) => Value::Name(ORGANIC),
                (Status::Attributed, true) => Value::Name(Purpose::Retargeting.name()),
                (Status::Attributed, false) => Value::Name(Purpose::Ua.name()),
                _ => Value::Empty,
            },
        }
    }
}

fn lower(text: &str) -> Cow<'_, str> {
    match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => text.to_ascii_lowercase().into(),
        false => text.into(),
    }
}
