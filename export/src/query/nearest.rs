//! The name that was probably meant.

/// Of a text that is longer only the beginning is compared: no name is so long, and comparing costs the
/// length of both, for each name.
const COMPARED_MAX: usize = 64;

/// Of the names, the one closest to the text, whatever the case of either.
pub(crate) fn nearest<'n>(text: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let compared = |text: &str| -> String {
        text.chars().take(COMPARED_MAX).map(|character| character.to_ascii_lowercase()).collect()
    };
    let text = compared(text);
    names.min_by_key(|name| strsim::damerau_levenshtein(&compared(name), &text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_edits_win() {
        assert_eq!(nearest("Chanel", ["campaign", "channel"].into_iter()), Some("channel"));
        assert_eq!(nearest("x", [].into_iter()), None);
    }

    /// Or a request could keep a processor busy for seconds.
    #[test]
    fn a_book_is_not_compared() {
        let book = format!("channel{}", "x".repeat(10_000_000));
        let names = (0..10_000).map(|_| "campaign").chain(["channel"]);
        assert_eq!(nearest(&book, names), Some("channel"));
    }
}
