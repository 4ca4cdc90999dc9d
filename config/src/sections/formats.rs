//! Reads the message format of each topic.

use std::path::PathBuf;

use crate::parse::error::Problem;
use crate::parse::section::Section;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Format {
    /// Detected per message.
    #[default]
    Auto,
    Json,
    /// Avro, with the schema id in a frame or a header.
    Avro,
    /// Plain Avro, with the schema in this file.
    AvroOf(PathBuf),
}

/// The format of each topic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Formats {
    pub clicks: Format,
    pub activations: Format,
    pub effects: Format,
}

pub(crate) fn read(formats: &mut Section<'_>) -> Formats {
    Formats {
        clicks: formats.text("clicks", parse).unwrap_or_default(),
        activations: formats.text("activations", parse).unwrap_or_default(),
        effects: formats.text("effects", parse).unwrap_or_default(),
    }
}

fn parse(text: &str) -> Result<Format, Problem> {
    match (text, text.strip_prefix("avro:")) {
        ("auto", _) => Ok(Format::Auto),
        ("json", _) => Ok(Format::Json),
        ("avro", _) => Ok(Format::Avro),
        (_, Some(path)) if !path.is_empty() => Ok(Format::AvroOf(path.into())),
        _ => {
            Err(r#"expected "auto", "json", "avro", or "avro:" and the path of a schema file"#
                .into())
        }
    }
}
