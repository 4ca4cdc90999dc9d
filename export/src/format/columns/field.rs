//! A field of an export: a native column, a prop, or an AppsFlyer column.

use std::borrow::Cow;

use super::native::Column;
use crate::appsflyer::column::HeadedColumn;

/// Prefix of the name of a prop.
pub const PROPS: &str = "props.";

/// A field of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    Column(Column),
    /// A member of the event's props, of any name.
    Prop(Box<str>),
    /// An AppsFlyer column.
    AppsFlyer(HeadedColumn),
}

impl Field {
    pub fn name(&self) -> Cow<'_, str> {
        match self {
            Self::Column(column) => column.name().into(),
            Self::Prop(name) => format!("{PROPS}{name}").into(),
            Self::AppsFlyer(column) => (*column.heading).into(),
        }
    }

    /// Parses the name of a column or prop.
    ///
    /// # Errors
    /// The name is unknown; the error is the nearest name of a column.
    pub fn parse(name: &str) -> Result<Self, &'static str> {
        match name.strip_prefix(PROPS) {
            Some(prop) if !prop.is_empty() => Ok(Self::Prop(prop.into())),
            _ => Column::parse(name).map(Self::Column),
        }
    }
}
