//! The encoding of exported rows, which are decoded without copying texts.

use attribution::facts::event::{EventTime, Purpose, SpreadId, TouchKind};
use attribution::rules::row::{
    AD_PARAMS, ActivationDetails, AdDetails, CONTRIBUTORS_MAX, EventType, InstallType, MatchType,
    RejectReason, Row, Status, TouchDetails,
};

use super::{Input, TOUCH_KINDS, choose, choose_option, code, put_text, put_time, put_varint};
use crate::StoreError;

const VERSION: u8 = 1;

macro_rules! text_cells {
    ($($(#[$doc:meta])* $cell:ident,)+) => {
        /// The text cells of a row, in the order in which they are stored.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum TextCell {
            $($(#[$doc])* $cell,)+
        }

        impl TextCell {
            /// In the order in which they are stored.
            pub const ALL: [Self; TEXT_CELLS] = [$(Self::$cell),+];
        }
    };
}

text_cells! {
    EventName,
    EventId,
    ClickId,
    ActivationId,
    Oaid,
    Gaid,
    Idfa,
    Caid,
    Idfv,
    Imei,
    AndroidId,
    Mac,
    Ip,
    Ua,
    DeviceModel,
    Os,
    OsVersion,
    AppVersion,
    Revenue,
    Currency,
    Props,
    TouchPurpose,
    /// In milliseconds.
    TouchLookback,
    TouchSite,
    TouchSub1,
    TouchSub2,
    TouchSub3,
    TouchSub4,
    TouchSub5,
    /// In milliseconds since 1970.
    InstallBeginTime,
    InstallStore,
    CreditOf,
    TouchCallback,
    TouchAdId,
    TouchAdName,
    TouchAdsetId,
    TouchAdsetName,
    TouchCampaignId,
    TouchCampaignName,
    TouchChannel,
    TouchCreativeId,
    TouchCreativeName,
    /// The params of the contributor's ad that are not empty, as a JSON object.
    Contributor1Params,
    Contributor1Callback,
    Contributor2Params,
    Contributor2Callback,
    Contributor3Params,
    Contributor3Callback,
}

pub const TEXT_CELLS: usize = TextCell::LAST as usize + 1;

impl TextCell {
    pub const FIRST: Self = Self::EventName;
    pub const LAST: Self = Self::Contributor3Callback;
    /// The first of the cells with details of the credited touch and the activation.
    pub const DETAILS: Self = Self::TouchPurpose;
    /// The cells of [`AD_PARAMS`] of the credited touch.
    pub const AD_PARAMS: [Self; AD_PARAMS.len()] = [
        Self::TouchAdId,
        Self::TouchAdName,
        Self::TouchAdsetId,
        Self::TouchAdsetName,
        Self::TouchCampaignId,
        Self::TouchCampaignName,
        Self::TouchChannel,
        Self::TouchCreativeId,
        Self::TouchCreativeName,
    ];
    /// The params and the callback token of each contributor.
    pub const CONTRIBUTORS: [[Self; 2]; CONTRIBUTORS_MAX] = [
        [Self::Contributor1Params, Self::Contributor1Callback],
        [Self::Contributor2Params, Self::Contributor2Callback],
        [Self::Contributor3Params, Self::Contributor3Callback],
    ];
}

/// The position of a text within [`RowView::texts`].
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    start: u32,
    len: u32,
}

/// A decoded contributor. Details of its ad are texts of the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContributorView {
    pub spreadid: SpreadId,
    pub kind: TouchKind,
    pub time: EventTime,
    pub match_type: MatchType,
}

/// A decoded row. Its key has the rest: app, event time, campaign and seq.
#[derive(Debug, Clone)]
pub struct RowView<'a> {
    pub revision: u32,
    pub event_type: EventType,
    pub status: Status,
    pub install_type: Option<InstallType>,
    pub match_type: Option<MatchType>,
    pub touch_kind: Option<TouchKind>,
    pub touch_time: Option<EventTime>,
    pub activation_time: Option<EventTime>,
    pub reject_reason: Option<RejectReason>,
    contributors: [Option<ContributorView>; CONTRIBUTORS_MAX],
    /// All texts with their lengths, verified to be UTF-8.
    texts: &'a [u8],
    spans: [Span; TEXT_CELLS],
    /// A bit per [`TextCell`]: set if the cell is not empty.
    present_cells: u64,
    /// A bit per [`TextCell`]: set if CSV must quote the cell.
    needs_quotes: u64,
}

impl<'a> RowView<'a> {
    pub fn decode(bytes: &'a [u8]) -> Result<Self, StoreError> {
        let mut input = Input::new(bytes);
        let version = input.byte()?;
        if version != VERSION {
            return Err(StoreError::corrupt(format!("a row of layout version {version}")));
        }
        let revision = input.varint_u32()?;
        let [event_type, status, install_type, match_type, touch_kind, reject_reason] =
            input.bytes()?;
        let mut row = Self {
            revision,
            event_type: choose(&EventType::ALL, event_type)?,
            status: choose(&Status::ALL, status)?,
            install_type: choose_option(&InstallType::ALL, install_type)?,
            match_type: choose_option(&MatchType::ALL, match_type)?,
            touch_kind: choose_option(&TOUCH_KINDS, touch_kind)?,
            reject_reason: choose_option(&RejectReason::ALL, reject_reason)?,
            touch_time: input.time()?,
            activation_time: input.time()?,
            contributors: [const { None }; CONTRIBUTORS_MAX],
            texts: &[],
            spans: [Span::default(); TEXT_CELLS],
            present_cells: 0,
            needs_quotes: 0,
        };
        let count = usize::from(input.byte()?);
        let contributors = row
            .contributors
            .get_mut(..count)
            .ok_or_else(|| StoreError::corrupt(format!("{count} contributors")))?;
        for contributor in contributors {
            *contributor = Some(ContributorView {
                spreadid: SpreadId(input.varint_u32()?),
                kind: choose(&TOUCH_KINDS, input.byte()?)?,
                time: input.some_time()?,
                match_type: choose(&MatchType::ALL, input.byte()?)?,
            });
        }
        row.needs_quotes = input.varint()?;
        row.present_cells = input.varint()?;
        if row.present_cells >> TEXT_CELLS != 0 {
            return Err(StoreError::corrupt("a row with unknown cells"));
        }
        row.texts = input.rest();
        // Spans have 32 bits.
        if u32::try_from(row.texts.len()).is_err() {
            return Err(StoreError::corrupt("a row of more than 4 GiB"));
        }
        row.find_texts()?;
        Ok(row)
    }

    fn find_texts(&mut self) -> Result<(), StoreError> {
        let mut input = Input::new(self.texts);
        // ASCII means that all lengths take one byte, and that no text needs a check of its own.
        let is_ascii = self.texts.is_ascii();
        let mut missing = self.present_cells;
        while missing != 0 {
            let len = if is_ascii { usize::from(input.byte()?) } else { input.len()? };
            let start = self.texts.len() - input.rest().len();
            let text = input.take(len)?;
            if !is_ascii {
                let check = std::str::from_utf8(text);
                check.map_err(|_| StoreError::corrupt("text that is not UTF-8"))?;
            }
            self.spans[missing.trailing_zeros() as usize] =
                Span { start: start as u32, len: len as u32 };
            missing &= missing - 1;
        }
        input.end()
    }

    /// The text of a cell, which may be empty.
    #[inline]
    pub fn text(&self, cell: TextCell) -> &'a str {
        let (bytes, len) = self.bytes(cell);
        bytes.get(..len).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
    }

    /// The bytes from the start of a cell's text to the end of all texts, and the length of the text. A caller can copy
    /// a fixed number of bytes, which is faster.
    #[inline]
    pub fn bytes(&self, cell: TextCell) -> (&'a [u8], usize) {
        let Span { start, len } = self.spans[cell as usize];
        (self.texts.get(start as usize..).unwrap_or_default(), len as usize)
    }

    /// The cells from `first` to `last`, inclusive, that are not empty.
    #[inline]
    pub fn texts_between(&self, first: TextCell, last: TextCell) -> impl Iterator<Item = TextCell> {
        let up_to_last = u64::MAX >> (u64::BITS - 1 - last as u32);
        let mut cells = self.present_cells & up_to_last & (u64::MAX << first as u32);
        std::iter::from_fn(move || {
            let next = TextCell::ALL.get(cells.trailing_zeros() as usize)?;
            cells &= cells - 1;
            Some(*next)
        })
    }

    #[inline]
    pub fn must_quote(&self, cell: TextCell) -> bool {
        self.needs_quotes >> (cell as u32) & 1 == 1
    }

    /// The time at which the install of the row's activation began.
    pub fn install_begin_time(&self) -> Option<EventTime> {
        self.text(TextCell::InstallBeginTime).parse().ok().and_then(EventTime::from_millis)
    }

    /// The lookback window of the credited touch.
    pub fn touch_lookback_ms(&self) -> Option<u64> {
        self.text(TextCell::TouchLookback).parse().ok()
    }

    /// The purpose of the credited touch; `None` without one.
    pub fn touch_purpose(&self) -> Option<Purpose> {
        Purpose::from_name(self.text(TextCell::TouchPurpose))
    }

    /// The contributor at an index, newest first.
    #[inline]
    pub fn contributor(&self, index: usize) -> Option<&ContributorView> {
        self.contributors.get(index)?.as_ref()
    }
}

/// Appends a row's value, without the fields of its key.
pub fn encode(row: &Row, out: &mut Vec<u8>) {
    let touch = row.touch.as_ref();
    out.push(VERSION);
    put_varint(out, u64::from(row.revision));
    // Types and statuses are never absent, so their codes start at 0.
    out.push(code(&EventType::ALL, Some(&row.event_type)).saturating_sub(1));
    out.push(code(&Status::ALL, Some(&row.status)).saturating_sub(1));
    out.push(code(&InstallType::ALL, row.install_type.as_ref()));
    out.push(code(&MatchType::ALL, touch.map(|touch| &touch.match_type)));
    out.push(code(&TOUCH_KINDS, touch.map(|touch| &touch.kind)));
    out.push(code(&RejectReason::ALL, row.reject_reason.as_ref()));
    put_time(out, touch.map(|touch| touch.time));
    put_time(out, row.activation.as_ref().map(|activation| activation.time));
    let contributors = row.contributors.get(..CONTRIBUTORS_MAX).unwrap_or(&row.contributors);
    out.push(contributors.len() as u8);
    for contributor in contributors {
        put_varint(out, u64::from(contributor.spreadid.0));
        out.push(code(&TOUCH_KINDS, Some(&contributor.kind)).saturating_sub(1));
        put_time(out, Some(contributor.time));
        out.push(code(&MatchType::ALL, Some(&contributor.match_type)).saturating_sub(1));
    }
    let (props, details) = (props_json(row), Details::of(row));
    let text = cells(row, &props, &details);
    let bits = |is_set: fn(&str) -> bool| {
        let bit = |(cell, text): (usize, &&str)| u64::from(is_set(text)) << cell;
        text.iter().enumerate().map(bit).sum::<u64>()
    };
    put_varint(out, bits(needs_quotes));
    put_varint(out, bits(|text| !text.is_empty()));
    for text in text.iter().filter(|text| !text.is_empty()) {
        put_text(out, text);
    }
}

/// Cells that are formatted from other values.
struct Details {
    lookback: String,
    install_begin_time: String,
    contributor_params: [String; CONTRIBUTORS_MAX],
}

impl Details {
    fn of(row: &Row) -> Self {
        let touch = row.touch.as_ref().map(|touch| &touch.details);
        let begin = row.activation.as_ref().and_then(|of| of.details.install_begin_time);
        Self {
            lookback: touch.map(|touch| touch.lookback_ms.to_string()).unwrap_or_default(),
            install_begin_time: begin.map(|time| time.millis().to_string()).unwrap_or_default(),
            contributor_params: std::array::from_fn(|index| {
                let ad = row.contributors.get(index).and_then(|of| of.ad.as_deref());
                ad.map(params_json).unwrap_or_default()
            }),
        }
    }
}

fn cells<'a>(row: &'a Row, props: &'a str, details: &'a Details) -> [&'a str; TEXT_CELLS] {
    let mut cells = [""; TEXT_CELLS];
    let of_event = event_cells(row, props, details);
    cells.iter_mut().zip(of_event).for_each(|(cell, text)| *cell = text);
    if let Some(ad) = row.touch.as_ref().and_then(|touch| touch.details.ad.as_deref()) {
        cells[TextCell::TouchCallback as usize] = &ad.callback;
        for (cell, param) in TextCell::AD_PARAMS.into_iter().zip(&ad.params) {
            cells[cell as usize] = param;
        }
    }
    let of_contributors = TextCell::CONTRIBUTORS.into_iter().zip(&row.contributors);
    for (([params, callback], contributor), json) in
        of_contributors.zip(&details.contributor_params)
    {
        cells[params as usize] = json;
        cells[callback as usize] = contributor.ad.as_deref().map_or("", |ad| &ad.callback);
    }
    cells
}

/// The cells before those of ads.
fn event_cells<'a>(
    row: &'a Row,
    props: &'a str,
    details: &'a Details,
) -> [&'a str; TextCell::TouchCallback as usize] {
    let touch = row.touch.as_ref();
    let touch_details = touch.map(|touch| &*touch.details);
    let [sub1, sub2, sub3, sub4, sub5] = match touch_details {
        Some(TouchDetails { subs, .. }) => subs.each_ref().map(|sub| &**sub),
        None => [""; 5],
    };
    let activation = row.activation.as_ref().map(|activation| &activation.details);
    let of_activation = |cell: fn(&ActivationDetails) -> &str| activation.map_or("", cell);
    let [oaid, gaid, idfa, caid, idfv, imei, android_id, mac] = &row.ids;
    [
        &row.event_name,
        &row.event_id,
        touch.map_or("", |touch| &touch.click_id),
        row.activation.as_ref().map_or("", |activation| &activation.id),
        oaid,
        gaid,
        idfa,
        caid,
        idfv,
        imei,
        android_id,
        mac,
        &row.device.ip,
        &row.device.ua,
        &row.device.model,
        &row.device.os,
        &row.device.os_version,
        &row.app_version,
        &row.revenue,
        &row.currency,
        props,
        touch_details.map_or("", |of| of.purpose.name()),
        &details.lookback,
        touch_details.map_or("", |of| &of.site),
        sub1,
        sub2,
        sub3,
        sub4,
        sub5,
        &details.install_begin_time,
        of_activation(|of| &of.store),
        of_activation(|of| &of.credit_of),
    ]
}

/// Compact JSON, or empty without props. The keys are already sorted.
fn props_json(row: &Row) -> String {
    if row.props.is_empty() {
        return String::new();
    }
    let pairs = row.props.iter().map(|(key, value)| (key.to_string(), (**value).into()));
    serde_json::Value::Object(pairs.collect()).to_string()
}

/// Compact JSON of the params that are not empty, or empty without any. The names are already sorted.
fn params_json(ad: &AdDetails) -> String {
    let pairs = ad.named_params().map(|(name, value)| (name.to_owned(), value.into()));
    let pairs: serde_json::Map<String, serde_json::Value> = pairs.collect();
    if pairs.is_empty() { String::new() } else { serde_json::Value::Object(pairs).to_string() }
}

/// True if the text must be quoted in CSV.
fn needs_quotes(text: &str) -> bool {
    text.bytes().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r'))
}

#[cfg(test)]
mod tests {
    use attribution::facts::device_ids::IdKind;
    use attribution::facts::event::{Device, Pid};
    use attribution::rules::row::{ActivationRef, Contributor, CreditedTouch};

    use super::*;
    use crate::layout::key::RowKey;
    use crate::maintenance::verify::stored_row;

    fn sample() -> Row {
        let at = |millis| EventTime::from_millis(millis).unwrap();
        let match_type = MatchType::Device(IdKind::AndroidId);
        let contributor = Contributor {
            spreadid: SpreadId(u32::MAX),
            kind: TouchKind::Impression,
            time: EventTime::MAX,
            match_type: MatchType::IpUa,
            ad: None,
        };
        let ad = |callback: &str, params| AdDetails::non_empty(callback.into(), params);
        let mut params = <[Box<str>; AD_PARAMS.len()]>::default();
        (params[0], params[8]) = ("1".into(), "a, \"b\"".into());
        let contributors = [ad("t", params.clone()), None, ad("", params.clone())];
        Row {
            pid: Pid(1),
            event_time: at(5),
            spreadid: SpreadId(7),
            seq: 9,
            revision: 300,
            event_type: EventType::Effect,
            event_name: "purchase, or so".into(),
            event_id: "e-1".into(),
            status: Status::Attributed,
            install_type: Some(InstallType::Reinstall),
            touch: Some(CreditedTouch {
                kind: TouchKind::Click,
                time: at(0),
                click_id: "c".into(),
                match_type,
                details: Box::new(TouchDetails {
                    purpose: Purpose::Retargeting,
                    lookback_ms: 604_800_000,
                    site: "site, 1".into(),
                    subs: ["1", "", "3", "", ""].map(Into::into),
                    ad: ad("token", params),
                }),
            }),
            activation: Some(ActivationRef {
                id: "a-1".into(),
                time: at(4),
                details: ActivationDetails {
                    install_begin_time: Some(at(3)),
                    store: "huawei".into(),
                    credit_of: "a-0".into(),
                },
            }),
            reject_reason: None,
            contributors: contributors.map(|ad| Contributor { ad, ..contributor.clone() }).into(),
            ids: Default::default(),
            device: Device { ua: "über \"x\"".into(), ..Device::default() },
            app_version: "".into(),
            revenue: "9.99".into(),
            currency: "CNY".into(),
            props: vec![("a".into(), "1\n".into()), ("b".into(), "\"".into())],
        }
    }

    #[test]
    fn an_encoded_row_decodes_to_the_same_values() {
        let mut bytes = Vec::new();
        encode(&sample(), &mut bytes);
        let view = RowView::decode(&bytes).unwrap();
        let row = stored_row::row(&RowKey::new(&sample(), 0, 0, 1), &view);
        assert_eq!(row, Some(sample()));
        assert_eq!(view.text(TextCell::Props), r#"{"a":"1\n","b":"\""}"#);
        let quoted = TextCell::ALL.into_iter().filter(|cell| view.must_quote(*cell));
        let expected = [
            TextCell::EventName,
            TextCell::Ua,
            TextCell::Props,
            TextCell::TouchSite,
            TextCell::TouchCreativeName,
            TextCell::Contributor1Params,
            TextCell::Contributor3Params,
        ];
        assert_eq!(quoted.collect::<Vec<_>>(), expected);
        let params = r#"{"ad_id":"1","creative_name":"a, \"b\""}"#;
        let of_contributors = TextCell::CONTRIBUTORS.map(|cells| cells.map(|cell| view.text(cell)));
        assert_eq!(of_contributors, [[params, "t"], ["", ""], [params, ""]]);
        let expected = ["1", "", "", "", "", "", "", "", "a, \"b\""];
        assert_eq!(TextCell::AD_PARAMS.map(|cell| view.text(cell)), expected);
        assert_eq!(view.text(TextCell::TouchCallback), "token");
    }

    fn with_texts(name: &str, ua: &str, currency: &str) -> Row {
        let device = Device { ua: ua.into(), ..Device::default() };
        Row { event_name: name.into(), device, currency: currency.into(), ..sample() }
    }

    #[test]
    fn texts_of_all_length_encodings_decode_to_the_same_text() {
        for len in [0, 1, 63, 126, 127, 128, 129, 255, 16_383, 16_384, 70_000] {
            for text in ["a", "ü", "語", "\u{10ffff}", "\0", "\u{80}"] {
                let text = text.repeat(len / text.len());
                let texts = [["x", &text, "é"], [&text, "é", &text], [&text, &text, &text]];
                for [name, ua, currency] in texts {
                    let mut bytes = Vec::new();
                    encode(&with_texts(name, ua, currency), &mut bytes);
                    let view = RowView::decode(&bytes).unwrap();
                    assert_eq!(view.text(TextCell::EventName), name);
                    assert_eq!(view.text(TextCell::EventId), "e-1");
                    assert_eq!(view.text(TextCell::Ua), ua);
                    assert_eq!(view.text(TextCell::Currency), currency);
                }
            }
        }
    }

    /// Damages a character, and lets a length end within a character.
    #[test]
    fn text_that_is_not_utf8_is_an_error() {
        for len in [0, 3, 126, 300] {
            let filler = "a".repeat(len);
            let mut bytes = Vec::new();
            encode(&with_texts(&filler, &format!("{filler}ü"), "ü"), &mut bytes);
            assert!(RowView::decode(&bytes).is_ok());
            let found = bytes.windows(2).enumerate().filter(|(_, pair)| *pair == "ü".as_bytes());
            let positions: Vec<usize> = found.map(|(position, _)| position).collect();
            assert_eq!(positions.len(), 2);
            for position in positions {
                for (offset, byte) in [(0, b'a'), (0, 0xff), (1, b'a'), (1, 0xff)] {
                    let mut damaged = bytes.clone();
                    damaged[position + offset] = byte;
                    assert!(RowView::decode(&damaged).is_err(), "{position} {offset} {byte}");
                }
            }
        }
        let mut bytes = Vec::new();
        encode(&with_texts("", "", "üü"), &mut bytes);
        // One byte less, so that the text ends within its last character.
        let length = bytes.windows(3).position(|part| part == b"\x04\xc3\xbc").unwrap();
        bytes[length] = 3;
        assert!(RowView::decode(&bytes).is_err());
    }
}
