//! The native columns.

use config::nearest::nearest;
use store::layout::codec::row::TextCell;

/// A column, by the source of its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// A text of the stored row.
    Text(TextCell),
    EventType,
    EventTime,
    App,
    Pid,
    Status,
    InstallType,
    SpreadId,
    Campaign,
    Channel,
    MatchType,
    TouchType,
    TouchTime,
    ActivationTime,
    InstallBeginTime,
    RejectReason,
    /// A part of the contributor at this index; 0 is the newest.
    Contributor(usize, ContributorPart),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContributorPart {
    SpreadId,
    Channel,
    TouchType,
    TouchTime,
    MatchType,
}

impl ContributorPart {
    /// All parts, in the order of columns.
    pub const ALL: [Self; 5] =
        [Self::SpreadId, Self::Channel, Self::TouchType, Self::TouchTime, Self::MatchType];
}

/// The default columns, in the order of a row.
const NATIVE: [(&str, Column); 50] = [
    ("event_type", Column::EventType),
    ("event_name", Column::Text(TextCell::EventName)),
    ("event_time", Column::EventTime),
    ("app", Column::App),
    ("pid", Column::Pid),
    ("event_id", Column::Text(TextCell::EventId)),
    ("status", Column::Status),
    ("install_type", Column::InstallType),
    ("spreadid", Column::SpreadId),
    ("campaign", Column::Campaign),
    ("channel", Column::Channel),
    ("match_type", Column::MatchType),
    ("touch_type", Column::TouchType),
    ("touch_time", Column::TouchTime),
    ("click_id", Column::Text(TextCell::ClickId)),
    ("activation_id", Column::Text(TextCell::ActivationId)),
    ("activation_time", Column::ActivationTime),
    ("reject_reason", Column::RejectReason),
    ("contributor1_spreadid", Column::Contributor(0, ContributorPart::SpreadId)),
    ("contributor1_channel", Column::Contributor(0, ContributorPart::Channel)),
    ("contributor1_touch_type", Column::Contributor(0, ContributorPart::TouchType)),
    ("contributor1_touch_time", Column::Contributor(0, ContributorPart::TouchTime)),
    ("contributor1_match_type", Column::Contributor(0, ContributorPart::MatchType)),
    ("contributor2_spreadid", Column::Contributor(1, ContributorPart::SpreadId)),
    ("contributor2_channel", Column::Contributor(1, ContributorPart::Channel)),
    ("contributor2_touch_type", Column::Contributor(1, ContributorPart::TouchType)),
    ("contributor2_touch_time", Column::Contributor(1, ContributorPart::TouchTime)),
    ("contributor2_match_type", Column::Contributor(1, ContributorPart::MatchType)),
    ("contributor3_spreadid", Column::Contributor(2, ContributorPart::SpreadId)),
    ("contributor3_channel", Column::Contributor(2, ContributorPart::Channel)),
    ("contributor3_touch_type", Column::Contributor(2, ContributorPart::TouchType)),
    ("contributor3_touch_time", Column::Contributor(2, ContributorPart::TouchTime)),
    ("contributor3_match_type", Column::Contributor(2, ContributorPart::MatchType)),
    ("oaid", Column::Text(TextCell::Oaid)),
    ("gaid", Column::Text(TextCell::Gaid)),
    ("idfa", Column::Text(TextCell::Idfa)),
    ("idfv", Column::Text(TextCell::Idfv)),
    ("caid", Column::Text(TextCell::Caid)),
    ("imei", Column::Text(TextCell::Imei)),
    ("android_id", Column::Text(TextCell::AndroidId)),
    ("mac", Column::Text(TextCell::Mac)),
    ("ip", Column::Text(TextCell::Ip)),
    ("ua", Column::Text(TextCell::Ua)),
    ("device_model", Column::Text(TextCell::DeviceModel)),
    ("os", Column::Text(TextCell::Os)),
    ("os_version", Column::Text(TextCell::OsVersion)),
    ("app_version", Column::Text(TextCell::AppVersion)),
    ("revenue", Column::Text(TextCell::Revenue)),
    ("currency", Column::Text(TextCell::Currency)),
    ("props", Column::Text(TextCell::Props)),
];

/// Columns that a file has only on request.
const MORE: [(&str, Column); 27] = [
    ("touch_purpose", Column::Text(TextCell::TouchPurpose)),
    ("touch_lookback_ms", Column::Text(TextCell::TouchLookback)),
    ("touch_site", Column::Text(TextCell::TouchSite)),
    ("touch_sub1", Column::Text(TextCell::TouchSub1)),
    ("touch_sub2", Column::Text(TextCell::TouchSub2)),
    ("touch_sub3", Column::Text(TextCell::TouchSub3)),
    ("touch_sub4", Column::Text(TextCell::TouchSub4)),
    ("touch_sub5", Column::Text(TextCell::TouchSub5)),
    ("install_begin_time", Column::InstallBeginTime),
    ("install_store", Column::Text(TextCell::InstallStore)),
    ("credit_activation_id", Column::Text(TextCell::CreditOf)),
    ("touch_callback", Column::Text(TextCell::TouchCallback)),
    ("touch_ad_id", Column::Text(TextCell::TouchAdId)),
    ("touch_ad_name", Column::Text(TextCell::TouchAdName)),
    ("touch_adset_id", Column::Text(TextCell::TouchAdsetId)),
    ("touch_adset_name", Column::Text(TextCell::TouchAdsetName)),
    ("touch_campaign_id", Column::Text(TextCell::TouchCampaignId)),
    ("touch_campaign_name", Column::Text(TextCell::TouchCampaignName)),
    ("touch_channel", Column::Text(TextCell::TouchChannel)),
    ("touch_creative_id", Column::Text(TextCell::TouchCreativeId)),
    ("touch_creative_name", Column::Text(TextCell::TouchCreativeName)),
    ("contributor1_params", Column::Text(TextCell::Contributor1Params)),
    ("contributor1_callback", Column::Text(TextCell::Contributor1Callback)),
    ("contributor2_params", Column::Text(TextCell::Contributor2Params)),
    ("contributor2_callback", Column::Text(TextCell::Contributor2Callback)),
    ("contributor3_params", Column::Text(TextCell::Contributor3Params)),
    ("contributor3_callback", Column::Text(TextCell::Contributor3Callback)),
];

impl Column {
    /// Returns the default columns, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        NATIVE.iter().map(|(_, column)| *column)
    }

    /// Returns the names of the default columns, in order.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NATIVE.iter().map(|(name, _)| *name)
    }

    /// Returns the names of all columns.
    pub fn known() -> impl Iterator<Item = &'static str> {
        Self::table().map(|(name, _)| *name)
    }

    fn table() -> impl Iterator<Item = &'static (&'static str, Self)> {
        NATIVE.iter().chain(&MORE)
    }

    pub fn name(self) -> &'static str {
        Self::table().find(|(_, column)| *column == self).map_or("", |(name, _)| name)
    }

    /// Parses the name of a column.
    ///
    /// # Errors
    /// No column has this name; the error is the nearest name.
    pub fn parse(name: &str) -> Result<Self, &'static str> {
        let found = Self::table().find(|(known, _)| *known == name);
        found
            .map(|(_, column)| *column)
            .ok_or_else(|| nearest(name, Self::known()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::columns::field::Field;

    #[test]
    fn every_column_is_found_by_its_name() {
        for column in Column::all().chain(MORE.map(|(_, column)| column)) {
            assert_eq!(Field::parse(column.name()), Ok(Field::Column(column)));
        }
        let names: std::collections::BTreeSet<_> = Column::known().collect();
        assert_eq!(names.len(), NATIVE.len() + MORE.len());
    }

    #[test]
    fn a_prop_may_have_any_name() {
        for name in ["level", "a.b", "Größe", " ", "props.x"] {
            let field = Field::parse(&format!("props.{name}")).unwrap();
            assert_eq!(field, Field::Prop(name.into()));
            assert_eq!(field.name(), format!("props.{name}"));
        }
        assert_eq!(Field::parse("props."), Err("props"));
    }

    #[test]
    fn an_unknown_name_returns_the_nearest() {
        assert_eq!(Column::parse("contributer2_chanel"), Err("contributor2_channel"));
        assert_eq!(Column::parse("Event_Time"), Err("event_time"));
        assert_eq!(Column::parse(""), Err("ip"));
    }
}
