//! The name that was probably meant.

use crate::parse::error::Problem;

/// Characters of a name that are compared: comparing costs the product of both lengths.
const COMPARED_MAX: usize = 64;

/// The name closest to the text, regardless of case; the first of several.
pub fn nearest<'n>(text: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    names.into_iter().min_by_key(|name| distance(text, name))
}

/// That a text is not one of the names, with the nearest of them.
pub(crate) fn expected<'n>(
    one_of: &str,
    text: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Problem {
    match nearest(text, names) {
        Some(nearest) => format!("expected {one_of}, the nearest is {nearest:?}"),
        None => format!("expected {one_of}, of which there are none"),
    }
    .into()
}

/// Edits between the beginnings of two names, regardless of case.
pub fn distance(text: &str, name: &str) -> usize {
    let compared = |text: &str| -> String {
        text.chars().take(COMPARED_MAX).map(|character| character.to_ascii_lowercase()).collect()
    };
    strsim::damerau_levenshtein(&compared(text), &compared(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_edits_win() {
        assert_eq!(nearest("Chanel", ["campaign", "channel"]), Some("channel"));
        assert_eq!(nearest("x", []), None);
    }

    /// Or a request could keep a processor busy for seconds.
    #[test]
    fn a_book_is_not_compared() {
        let book = format!("channel{}", "x".repeat(10_000_000));
        let names = (0..10_000).map(|_| "campaign").chain(["channel"]);
        assert_eq!(nearest(&book, names), Some("channel"));
    }
}
