//! Turns a report into the JSON of a touch.

use ingest::decode::ignored_click_id;
use md5::{Digest as _, Md5};
use serde_json::{Map, Value};

use super::link::LinkKind;
use super::pairs::Pairs;
use super::{Dialect, Meaning, Parameter, Presence, TimeUnit};

/// The name of `params` with the callback token.
const CALLBACK: &str = "callback";
/// The name of `params` that says whether the time is that of the report's arrival.
const TIME_SOURCE: &str = "time_source";
const ARRIVAL: &str = "arrival";
/// The last second of the year 9999.
const SECONDS_MAX: u64 = 253_402_300_799;
/// The members of an object that is a CAID; the last two are Kuaishou's.
const CAID_NAMES: [&str; 3] = ["caid", "kenyId", "kenyid"];

/// A report of a click or an impression.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Report<'a> {
    pub kind: LinkKind,
    pub app: &'a str,
    pub pairs: &'a Pairs<'a>,
    /// When the report arrived.
    pub arrived_ms: i64,
}

/// What a report says.
#[derive(Debug)]
pub(crate) struct Reading {
    /// One for each parameter of the dialect, in the same order.
    pub presence: Box<[Presence]>,
    /// The campaign, also if there is no touch.
    pub spreadid: Option<u32>,
    /// An error if the campaign is missing, or a number is not one.
    pub touch: Result<Touch, BadParameter>,
}

#[derive(Debug)]
pub(crate) struct Touch {
    pub event: Map<String, Value>,
    pub spreadid: u32,
}

/// A parameter without a usable value. The message does not contain the value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{parameter}: expected {expected}")]
pub(crate) struct BadParameter {
    pub parameter: Box<str>,
    pub expected: &'static str,
}

impl BadParameter {
    fn new(parameter: &str, expected: &'static str) -> Self {
        Self { parameter: parameter.into(), expected }
    }
}

impl Dialect {
    /// Reads a report. Values that identify nobody are left to the decoder of events, which counts them.
    pub fn read(&self, report: Report<'_>) -> Reading {
        let mut fields = Fields::default();
        let mut presence = Vec::with_capacity(self.parameters.len());
        let mut bad = None;
        for parameter in &self.parameters {
            let value = report.pairs.value(&parameter.name, parameter.meaning.has_spaces());
            presence.push(match value {
                Some(value) if parameter.is_unexpanded(&value) => Presence::Placeholder,
                Some(value) if parameter.is_no_time(&value) => Presence::Missing,
                Some(value) => {
                    bad = bad.or(fields.set(parameter, value).err());
                    Presence::Value
                }
                None => Presence::Missing,
            });
        }
        let spreadid = spreadid(report.pairs);
        let found = spreadid.as_ref().ok().copied();
        let touch = spreadid.and_then(|spreadid| match bad {
            Some(bad) => Err(bad),
            None => self.touch(report, fields, spreadid),
        });
        Reading { presence: presence.into(), spreadid: found, touch }
    }

    fn touch(
        &self,
        report: Report<'_>,
        fields: Fields,
        spreadid: u32,
    ) -> Result<Touch, BadParameter> {
        let click_id = self.click_id(report.pairs, fields.callback());
        let mut event = fields.into_event(report);
        event.insert("spreadid".to_owned(), spreadid.into());
        event.extend(click_id.map(|id| ("click_id".to_owned(), Value::from(id))));
        common(report.pairs, &mut event)?;
        Ok(Touch { event, spreadid })
    }

    /// Returns the network's id of the click, or one that is derived from its callback token. A value that identifies
    /// nobody is in neither: as a part of an id, it would make many clicks one touch. The token itself is in no id,
    /// because ids are exported, and with the token anyone can report events to the network.
    fn click_id(&self, pairs: &Pairs<'_>, callback: Option<&str>) -> Option<String> {
        let mut parts = self.click_id.iter().map(|name| self.id_part(name, pairs));
        let own = parts.next().flatten().map(|first| {
            let rest: Vec<String> = parts.flatten().collect();
            std::iter::once(first).chain(rest).collect::<Vec<_>>().join("-")
        });
        let derived = |text: &str| format!("{}:{}", self.name, md5_hex(text));
        match own {
            Some(own) if self.click_id.iter().any(|name| self.is_callback(name)) => {
                Some(derived(&own))
            }
            Some(own) => Some(own),
            None => callback.filter(|token| identifies_click(token)).map(derived),
        }
    }

    fn is_callback(&self, name: &str) -> bool {
        let mut parameters = self.parameters.iter();
        parameters.any(|one| *one.name == *name && one.meaning == Meaning::Callback)
    }

    fn id_part(&self, name: &str, pairs: &Pairs<'_>) -> Option<String> {
        let parameter = self.parameters.iter().find(|parameter| *parameter.name == *name)?;
        let value = pairs.value(name, false)?;
        (!parameter.is_unexpanded(&value) && identifies_click(&value)).then_some(value)
    }
}

impl Parameter {
    /// Checks for what a network sends in place of a time that it does not have, such as 0 and null.
    fn is_no_time(&self, value: &str) -> bool {
        matches!(self.meaning, Meaning::Time(_)) && ignored_click_id(value.trim()).is_some()
    }
}

fn identifies_click(text: &str) -> bool {
    ignored_click_id(text.trim()).is_none()
}

fn spreadid(pairs: &Pairs<'_>) -> Result<u32, BadParameter> {
    let number = pairs.value("spreadid", false).and_then(|text| text.parse::<u32>().ok());
    let expected = "the number of the campaign, 1 to 4294967295, in the link";
    number.filter(|number| *number > 0).ok_or_else(|| BadParameter::new("spreadid", expected))
}

/// Reads the parameters that every link may have.
fn common(pairs: &Pairs<'_>, event: &mut Map<String, Value>) -> Result<(), BadParameter> {
    if let Some(purpose) = pairs.value("purpose", false) {
        event.insert("purpose".to_owned(), purpose.into());
    }
    if let Some(lookback) = pairs.value("lookback_ms", false) {
        let bad = |_| BadParameter::new("lookback_ms", "a number of milliseconds");
        event.insert("lookback_ms".to_owned(), lookback.parse::<u64>().map_err(bad)?.into());
    }
    Ok(())
}

/// The fields that were read so far.
#[derive(Default)]
struct Fields {
    time: Option<Value>,
    texts: Map<String, Value>,
    ids: Map<String, Value>,
    params: Map<String, Value>,
    /// Ids whose kind depends on the operating system.
    muid: Option<String>,
    ifa: Option<String>,
}

impl Fields {
    fn set(&mut self, parameter: &Parameter, value: String) -> Result<(), BadParameter> {
        match &parameter.meaning {
            Meaning::Nothing => {}
            Meaning::Time(unit) => {
                let expected = match unit {
                    TimeUnit::Seconds => "a time in seconds since 1970",
                    TimeUnit::Milliseconds => "a time in milliseconds since 1970",
                    TimeUnit::Event => "a time in milliseconds since 1970, or in RFC 3339",
                };
                let time = time(*unit, value);
                self.time = Some(time.ok_or_else(|| BadParameter::new(&parameter.name, expected))?);
            }
            Meaning::Callback => set(&mut self.params, CALLBACK, value),
            Meaning::Text(field) => set(&mut self.texts, field, value),
            Meaning::OsNumber => match &*value {
                "0" => set(&mut self.texts, "os", "android".to_owned()),
                "1" => set(&mut self.texts, "os", "ios".to_owned()),
                _ => {}
            },
            Meaning::Id(kind) => set(&mut self.ids, kind, value),
            Meaning::Muid => self.muid = Some(value),
            Meaning::Ifa => self.ifa = Some(value),
            Meaning::CaidJson => {
                let is_json = value.trim_start().starts_with(['[', '{']);
                let list = if is_json { caids(&value) } else { value };
                if !list.is_empty() {
                    set(&mut self.ids, "caid", list);
                }
            }
            Meaning::Param(name) => set(&mut self.params, name, value),
        }
        Ok(())
    }

    fn callback(&self) -> Option<&str> {
        self.params.get(CALLBACK).and_then(Value::as_str)
    }

    fn into_event(self, report: Report<'_>) -> Map<String, Value> {
        let Self { time, texts: mut event, mut ids, mut params, muid, ifa } = self;
        let os = event.get("os").and_then(Value::as_str).and_then(Os::of);
        if let Some(muid) = muid {
            let kind = if os == Some(Os::Ios) { "idfa_md5" } else { "imei_md5" };
            set(&mut ids, kind, muid);
        }
        if let Some(ifa) = ifa {
            set(&mut ids, ifa_kind(os, &ifa), ifa);
        }
        let time = time.unwrap_or_else(|| {
            set(&mut params, TIME_SOURCE, ARRIVAL.to_owned());
            report.arrived_ms.into()
        });
        event.insert("type".to_owned(), report.kind.name().into());
        event.insert("app".to_owned(), report.app.into());
        event.insert("time".to_owned(), time);
        for (name, members) in [("ids", ids), ("params", params)] {
            if !members.is_empty() {
                event.insert(name.to_owned(), members.into());
            }
        }
        event
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Os {
    Android,
    Ios,
}

impl Os {
    fn of(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        if text.contains("android") {
            Some(Self::Android)
        } else if ["ios", "iphone", "ipad"].iter().any(|name| text.contains(name)) {
            Some(Self::Ios)
        } else {
            None
        }
    }
}

/// Where the system is unknown, the case of an advertising id shows it: iOS writes it in upper case, Android in lower
/// case.
fn ifa_kind(os: Option<Os>, ifa: &str) -> &'static str {
    let is_ios = match os {
        Some(os) => os == Os::Ios,
        None => ifa.bytes().any(|byte| byte.is_ascii_uppercase()),
    };
    if is_ios { "idfa" } else { "gaid" }
}

fn set(members: &mut Map<String, Value>, name: &str, value: String) {
    members.insert(name.to_owned(), value.into());
}

/// Returns the time as an event has it. Its range is checked with the event, but for milliseconds in place of seconds:
/// the event's error would ask for milliseconds.
fn time(unit: TimeUnit, value: String) -> Option<Value> {
    let number = value.trim().parse::<u64>().ok();
    match unit {
        TimeUnit::Seconds => {
            number.filter(|seconds| *seconds <= SECONDS_MAX).map(|seconds| (seconds * 1_000).into())
        }
        TimeUnit::Milliseconds => number.map(Value::from),
        TimeUnit::Event => Some(number.map_or_else(|| value.into(), Value::from)),
    }
}

/// Returns the CAIDs of a JSON array as a comma-separated list. What is not understood is left out: a part of such a
/// text may be equal for all devices, and would be one id of theirs.
fn caids(value: &str) -> String {
    let items: Vec<Value> = serde_json::from_str(value).unwrap_or_default();
    let caid = |item: &Value| match item {
        Value::String(caid) => Some(caid.clone()),
        Value::Object(fields) => {
            let caid = CAID_NAMES.into_iter().find_map(|name| fields.get(name)?.as_str())?;
            let version = fields.get("version").and_then(|version| match version {
                Value::String(text) => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                _ => None,
            });
            Some(version.map_or_else(|| caid.to_owned(), |version| format!("{version}_{caid}")))
        }
        _ => None,
    };
    items.iter().filter_map(caid).collect::<Vec<_>>().join(",")
}

fn md5_hex(text: &str) -> String {
    Md5::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
