//! The name that was probably meant.

/// Of the names, the one closest to the text, whatever the case of either.
pub(crate) fn nearest<'n>(text: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let text = text.to_ascii_lowercase();
    names.min_by_key(|name| strsim::damerau_levenshtein(&name.to_ascii_lowercase(), &text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_edits_win() {
        assert_eq!(nearest("Chanel", ["campaign", "channel"].into_iter()), Some("channel"));
        assert_eq!(nearest("x", [].into_iter()), None);
    }
}
