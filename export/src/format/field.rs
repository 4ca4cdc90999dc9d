//! What a file can have in a column.

use std::borrow::Cow;

use super::column::Column;
use crate::appsflyer::column::HeadedColumn;

/// Before the name of a prop.
pub const PROPS: &str = "props.";

/// What an export can be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    Column(Column),
    /// A member of the event's props, whatever its name.
    Prop(Box<str>),
    /// A column of AppsFlyer's.
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

    /// # Errors
    /// The nearest name of a column, where there is none of this one.
    pub fn parse(name: &str) -> Result<Self, &'static str> {
        match name.strip_prefix(PROPS) {
            Some(prop) if !prop.is_empty() => Ok(Self::Prop(prop.into())),
            _ => Column::parse(name).map(Self::Column),
        }
    }
}
