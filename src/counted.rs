//! Numbers with their nouns, in texts for people.

/// Formats a number with its noun: `1 line`, `2 lines`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_are_singular_or_plural() {
        assert_eq!(["0 lines", "1 line", "2 lines"], [0, 1, 2].map(|n| counted(n, "line")));
    }
}
