//! Suggests the name that was probably meant.

use crate::parse::error::Problem;

/// Maximum number of characters that are compared, because the cost is the product of both lengths.
const COMPARED_MAX: usize = 64;

/// Returns the name that is closest to the text, ignoring case; the first one if several are equally close.
pub fn nearest<'n>(text: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    names.into_iter().min_by_key(|name| distance(text, name))
}

/// Returns the problem that a text is not one of the names; it shows the nearest name.
pub(crate) fn unknown_name<'n>(
    expected: &str,
    text: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Problem {
    match nearest(text, names) {
        Some(nearest) => format!("expected {expected}, the nearest is {nearest:?}"),
        None => format!("expected {expected}, but none is defined"),
    }
    .into()
}

/// Returns the edit distance between the first `COMPARED_MAX` characters of two names, ignoring case.
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
    fn the_name_with_the_fewest_edits_is_nearest() {
        assert_eq!(nearest("Chanel", ["campaign", "channel"]), Some("channel"));
        assert_eq!(nearest("x", []), None);
    }

    /// Without this limit, a request could keep a CPU busy for seconds.
    #[test]
    fn only_the_start_of_a_long_text_is_compared() {
        let text = format!("channel{}", "x".repeat(10_000_000));
        let names = (0..10_000).map(|_| "campaign").chain(["channel"]);
        assert_eq!(nearest(&text, names), Some("channel"));
    }
}
