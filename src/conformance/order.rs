//! The orders in which the events of a case arrive.

use super::case::Case;

attribution::named! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Order {
        Given = "given",
        Reversed = "reversed",
        /// As given, then all events again.
        GivenTwice = "given-twice",
        /// Reversed, then all events again as given.
        ReversedThenGiven = "reversed-then-given",
    }
}

impl Order {
    /// Returns the events in order of arrival, one per line.
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
