//! Parses and checks the file of a dialect.

use serde::Deserialize;

use super::{Dialect, Meaning, Parameter, Placeholder, TimeUnit};
use crate::signature;

/// Kinds of device ids, each also with `_md5`.
const IDS: [&str; 16] = [
    "oaid",
    "gaid",
    "idfa",
    "caid",
    "idfv",
    "imei",
    "android_id",
    "mac",
    "oaid_md5",
    "gaid_md5",
    "idfa_md5",
    "caid_md5",
    "idfv_md5",
    "imei_md5",
    "android_id_md5",
    "mac_md5",
];
/// Fields of a touch that are texts.
const TEXTS: [&str; 6] = ["ip", "ua", "device_model", "os", "os_version", "site"];
const FIELDS: &str = "expected time, callback, ip, ua, device_model, os, os_version, site, muid, ifa, \
                      ids.KIND or params.NAME";

const FORMS: &str =
    "form: expected \"os_number\" with field = \"os\", or \"caid_json\" with field = \"ids.caid\"";

/// Parameters that every link has.
pub(crate) const COMMON: [&str; 3] = ["spreadid", "purpose", "lookback_ms"];

const NAME_CHARS_MAX: usize = 40;
/// Maximum length of a macro or fixed text, and of an answer.
const TEXT_BYTES_MAX: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    verified: bool,
    #[serde(default = "default_answer")]
    answer: String,
    #[serde(default)]
    click_id: Vec<String>,
    parameters: Vec<FileParameter>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileParameter {
    name: String,
    #[serde(rename = "macro")]
    placeholder: Option<String>,
    impression_macro: Option<String>,
    value: Option<String>,
    field: Option<String>,
    unit: Option<String>,
    form: Option<String>,
}

fn default_answer() -> String {
    "ok".to_owned()
}

/// Parses a file.
///
/// # Errors
/// Returns the first mistake, with the parameter.
pub(super) fn parse(name: &str, text: &str) -> Result<Dialect, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string().trim().to_owned())?;
    let mut parameters: Vec<Parameter> = Vec::with_capacity(file.parameters.len());
    for raw in file.parameters {
        let shown = raw.name.clone();
        let parameter =
            parameter(raw).map_err(|problem| format!("parameter {shown:?}: {problem}"))?;
        if parameters.iter().any(|other| other.name == parameter.name) {
            return Err(format!("parameter {shown:?}: expected a unique name"));
        }
        parameters.push(parameter);
    }
    for part in &file.click_id {
        if !parameters.iter().any(|parameter| *parameter.name == **part) {
            return Err(format!("click_id: expected names of parameters: {part:?}"));
        }
    }
    if file.answer.len() > TEXT_BYTES_MAX {
        return Err(format!("answer: expected at most {TEXT_BYTES_MAX} bytes"));
    }
    let times = parameters.iter().filter(|one| matches!(one.meaning, Meaning::Time(_))).count();
    let callbacks = parameters.iter().filter(|one| one.meaning == Meaning::Callback).count();
    if times > 1 || callbacks > 1 {
        return Err("parameters: expected at most one time and one callback".to_owned());
    }
    let click_id = file.click_id.into_iter().map(String::into_boxed_str).collect();
    Ok(Dialect {
        name: name.into(),
        is_verified: file.verified,
        answer: file.answer.into(),
        click_id,
        parameters,
    })
}

fn parameter(raw: FileParameter) -> Result<Parameter, String> {
    check_name(&raw.name)?;
    let meaning = meaning(raw.field.as_deref(), raw.unit.as_deref(), raw.form.as_deref())?;
    let placeholder = match (raw.placeholder, raw.impression_macro, raw.value) {
        (Some(click), impression, None) => {
            let impression = impression.unwrap_or_else(|| click.clone());
            Placeholder::Macro { click: link_text(click)?, impression: link_text(impression)? }
        }
        (None, None, Some(value)) if meaning == Meaning::Nothing => {
            Placeholder::Fixed(link_text(value)?)
        }
        _ => return Err("expected a macro, or a value without field".to_owned()),
    };
    Ok(Parameter { name: raw.name.into(), placeholder, meaning })
}

fn check_name(name: &str) -> Result<(), String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !(1..=NAME_CHARS_MAX).contains(&name.len()) || !name.bytes().all(is_allowed) {
        return Err(format!(
            "name: expected 1 to {NAME_CHARS_MAX} characters of a-z, A-Z, 0-9, '_' and '-'"
        ));
    }
    if COMMON.contains(&name) {
        return Err("name: expected another one: every link has this parameter".to_owned());
    }
    Ok(())
}

/// A text that can be in a URL as it is.
fn link_text(text: String) -> Result<Box<str>, String> {
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'&' | b'#' | b'"');
    if (1..=TEXT_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_allowed) {
        Ok(text.into())
    } else {
        Err("macro, value: expected visible ASCII characters without '&', '#' and quotes"
            .to_owned())
    }
}

fn meaning(field: Option<&str>, unit: Option<&str>, form: Option<&str>) -> Result<Meaning, String> {
    let meaning = match (field, unit, form) {
        (Some("time"), unit, None) => return time_unit(unit).map(Meaning::Time),
        (_, Some(_), _) => return Err("unit: expected only with field = \"time\"".to_owned()),
        (Some("os"), None, Some("os_number")) => return Ok(Meaning::OsNumber),
        (Some("ids.caid"), None, Some("caid_json")) => return Ok(Meaning::CaidJson),
        (_, None, Some(_)) => {
            return Err(FORMS.to_owned());
        }
        (None, None, None) => Meaning::Nothing,
        (Some("callback"), None, None) => Meaning::Callback,
        (Some("muid"), None, None) => Meaning::Muid,
        (Some("ifa"), None, None) => Meaning::Ifa,
        (Some(field), None, None) => text_field(field).ok_or_else(|| format!("field: {FIELDS}"))?,
    };
    Ok(meaning)
}

fn time_unit(unit: Option<&str>) -> Result<TimeUnit, String> {
    match unit {
        Some("s") => Ok(TimeUnit::Seconds),
        Some("ms") => Ok(TimeUnit::Milliseconds),
        None => Ok(TimeUnit::Event),
        Some(_) => Err("unit: expected \"s\" or \"ms\"".to_owned()),
    }
}

fn text_field(field: &str) -> Option<Meaning> {
    if let Some(kind) = field.strip_prefix("ids.") {
        return IDS.into_iter().find(|known| *known == kind).map(Meaning::Id);
    }
    if let Some(name) = field.strip_prefix("params.") {
        // A report must not say how its signature is.
        let is_allowed = check_name(name).is_ok() && name != signature::PARAM;
        return is_allowed.then(|| Meaning::Param(name.into()));
    }
    TEXTS.into_iter().find(|known| *known == field).map(Meaning::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_wrong(text: &str, expected: &str) {
        let problem = parse("x", text).unwrap_err();
        assert!(problem.contains(expected), "{problem}");
    }

    fn check_wrong_parameter(parameter: &str, expected: &str) {
        check_wrong(&format!("parameters = [{{ {parameter} }}]"), expected);
    }

    #[test]
    fn a_file_names_parameters_and_fields() {
        let text = "click_id = [\"c\"]\nparameters = [\n\
                    { name = \"c\", macro = \"__C__\" },\n\
                    { name = \"t\", macro = \"__T__\", impression_macro = \"__V__\", \
                    field = \"time\", unit = \"s\" },\n\
                    { name = \"z\", value = \"1\" },\n]";
        let dialect = parse("x", text).unwrap();
        assert_eq!((&*dialect.name, &*dialect.answer), ("x", "ok"));
        assert_eq!(dialect.parameters[1].meaning, Meaning::Time(TimeUnit::Seconds));
        assert!(["__T__", "__V__"].iter().all(|text| dialect.parameters[1].is_unexpanded(text)));
        assert!(!dialect.parameters[1].is_unexpanded("c-1"));
    }

    #[test]
    fn mistakes_are_named() {
        check_wrong("", "missing field `parameters`");
        check_wrong("parameters = []\nclick = 1", "unknown field `click`");
        check_wrong(
            "parameters = []\nclick_id = [\"a\"]",
            "click_id: expected names of parameters: \"a\"",
        );
        check_wrong(
            "parameters = [{ name = \"a\", macro = \"A\" }, { name = \"a\", macro = \"A\" }]",
            "expected a unique name",
        );
        check_wrong_parameter("name = \"a b\", macro = \"A\"", "name: expected 1 to 40");
        check_wrong_parameter(
            "name = \"spreadid\", macro = \"A\"",
            "every link has this parameter",
        );
        check_wrong_parameter("name = \"a\"", "expected a macro, or a value");
        check_wrong_parameter(
            "name = \"a\", macro = \"A\", value = \"1\"",
            "expected a macro, or a value",
        );
        check_wrong_parameter(
            "name = \"a\", value = \"1\", field = \"ip\"",
            "expected a macro, or a value",
        );
        check_wrong_parameter("name = \"a\", macro = \"A&b\"", "expected visible ASCII characters");
        check_wrong_parameter(
            "name = \"a\", macro = \"A\", field = \"ids.odid\"",
            "field: expected time",
        );
        check_wrong_parameter(
            "name = \"a\", macro = \"A\", field = \"params.signature\"",
            "field: expected time",
        );
        check_wrong_parameter(
            "name = \"a\", macro = \"A\", field = \"time\", unit = \"us\"",
            "unit: expected",
        );
        check_wrong_parameter(
            "name = \"a\", macro = \"A\", field = \"ip\", unit = \"s\"",
            "unit: expected only",
        );
        check_wrong_parameter(
            "name = \"a\", macro = \"A\", field = \"ip\", form = \"os_number\"",
            "form: expected",
        );
        let two = "parameters = [{ name = \"a\", macro = \"A\", field = \"time\" }, \
                   { name = \"b\", macro = \"B\", field = \"time\" }]";
        check_wrong(two, "at most one time");
    }
}
