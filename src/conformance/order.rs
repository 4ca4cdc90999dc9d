//! The orders in which the events of a case arrive.

use super::case::Case;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Given,
    Reversed,
    /// As given, then everything again.
    GivenTwice,
    /// Reversed, then everything again as given.
    ReversedThenGiven,
}

impl Order {
    pub const ALL: [Self; 4] =
        [Self::Given, Self::Reversed, Self::GivenTwice, Self::ReversedThenGiven];

    pub fn name(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Reversed => "reversed",
            Self::GivenTwice => "given-twice",
            Self::ReversedThenGiven => "reversed-then-given",
        }
    }

    /// The events in order of arrival, one a line.
    pub fn lines(self, case: &Case) -> String {
        let given = || case.events.iter();
        let lines: Vec<&String> = match self {
            Self::Given => given().collect(),
            Self::Reversed => given().rev().collect(),
            Self::GivenTwice => given().chain(given()).collect(),
            Self::ReversedThenGiven => given().rev().chain(given()).collect(),
        };
        lines.into_iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }
}
