//! What an ad network sends about a click or an impression, and what it means: a file per network.
//!
//! A dialect is data, so that a user can add or correct one: `parse` checks a file, `catalogue` has all of them, and
//! `read` turns a report into a touch. docs/collector.md describes the files.

pub(crate) mod catalogue;
pub(crate) mod link;
pub(crate) mod pairs;
pub(crate) mod parse;
pub(crate) mod read;
#[cfg(test)]
mod tests;

use ingest::decode::{parse_address, without_macro};
use percent_encoding::percent_decode_str;

/// The parameters of a network's reports.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// The name of its file, without the extension. It is part of derived click ids.
    pub name: Box<str>,
    /// True if its facts come from an official document, or agree in two independent programs.
    pub is_verified: bool,
    /// The body of a successful response.
    pub answer: Box<str>,
    /// The parameters whose values together identify a click. If this is empty, or the first value is absent, the
    /// callback token identifies it. An id is derived if the token is a part of it.
    pub click_id: Vec<Box<str>>,
    pub parameters: Vec<Parameter>,
}

/// A parameter of a report's URL.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub name: Box<str>,
    /// What the network replaces by the value, or sends unchanged if it does not know the macro.
    pub placeholder: Placeholder,
    pub meaning: Meaning,
}

#[derive(Debug)]
pub(crate) enum Placeholder {
    /// The macro, in the reports of clicks and of impressions.
    Macro { click: Box<str>, impression: Box<str> },
    /// A text that the network requires in the link.
    Fixed(Box<str>),
}

/// The field of an event that a parameter becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// None; it can be a part of the click id.
    Nothing,
    Time(TimeUnit),
    /// What the network wants back with a conversion, unchanged.
    Callback,
    /// A field of the event that is a text.
    Text(&'static str),
    /// 0 is Android, 1 is iOS, everything else is unknown.
    OsNumber,
    /// A device id, by its kind.
    Id(&'static str),
    /// The MD5 of an IMEI, or on iOS of an IDFA.
    Muid,
    /// A GAID, or on iOS an IDFA.
    Ifa,
    /// CAIDs as a JSON array of texts, or of objects with the CAID and its version.
    CaidJson,
    Param(Box<str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeUnit {
    Seconds,
    Milliseconds,
    /// As in an event: milliseconds, or RFC 3339.
    Event,
}

/// What a report has of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Value,
    /// The macro itself: the network has not replaced it.
    Placeholder,
    /// The parameter is absent or empty, or a time that says nothing.
    Missing,
}

impl Dialect {
    /// Returns the names of the parameters that a report has in this way. `presence` is that of every parameter.
    pub fn names_with(
        &self,
        presence: &[Presence],
        wanted: Presence,
    ) -> impl Iterator<Item = &str> {
        let parameters = self.parameters.iter().zip(presence);
        let found = parameters.filter(move |(_, presence)| **presence == wanted);
        found.map(|(parameter, _)| &*parameter.name)
    }

    /// Returns the name of the parameter that becomes a field of the event, such as `ids.oaid`; `None` if none does, or
    /// several do.
    pub fn parameter_of(&self, field: &str) -> Option<&str> {
        let becoming = self.parameters.iter().filter(|one| one.meaning.may_be(field));
        let mut names = becoming.map(|one| &*one.name);
        names.next().filter(|_| names.next().is_none())
    }
}

impl Parameter {
    /// Checks whether the network has sent the macro itself, or another one: links are edited by hand.
    pub fn is_unexpanded(&self, value: &str) -> bool {
        match &self.placeholder {
            Placeholder::Macro { click, impression } => {
                is_sent(click, value) || is_sent(impression, value) || is_macro(value)
            }
            Placeholder::Fixed(_) => false,
        }
    }
}

/// Checks whether a decoded value is this macro. Of `%%ADID%%`, decoding takes `%AD` for a byte.
fn is_sent(name: &str, value: &str) -> bool {
    value == name || (name.contains('%') && percent_decode_str(name).decode_utf8_lossy() == value)
}

/// Checks whether a macro fills the whole text. An IPv6 address in brackets is none.
fn is_macro(text: &str) -> bool {
    without_macro(text).is_empty() && parse_address(text).is_none()
}

impl Meaning {
    /// Checks whether a parameter with this meaning can become this field of an event.
    fn may_be(&self, field: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Time(_) => field == "time",
            Self::Callback => field == "params.callback",
            Self::Text(name) => field == *name,
            Self::OsNumber => field == "os",
            Self::Id(kind) => field.strip_prefix("ids.") == Some(*kind),
            Self::Muid => matches!(field, "ids.imei_md5" | "ids.idfa_md5"),
            Self::Ifa => matches!(field, "ids.gaid" | "ids.idfa"),
            Self::CaidJson => field == "ids.caid",
            Self::Param(name) => field.strip_prefix("params.") == Some(&**name),
        }
    }

    /// Checks whether a plus sign in the URL is a space. Tokens and ids have no spaces, but some networks do not encode
    /// the plus signs of their base64.
    pub fn has_spaces(&self) -> bool {
        matches!(self, Self::Text(_) | Self::Param(_) | Self::CaidJson)
    }
}
