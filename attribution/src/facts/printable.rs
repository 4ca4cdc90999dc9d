//! Escapes untrusted text for logs and terminals, so that it cannot move the cursor, start a line or change the text
//! direction.

use std::borrow::Cow;
use std::fmt::Write;

/// Escapes unprintable characters: a newline as `\n`, an escape character as `\u{1b}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_unprintable(letter) {
            // Writing to a `String` cannot fail.
            let _ = write!(escaped, "{}", letter.escape_default());
        } else {
            escaped.push(letter);
        }
    }
    Cow::Owned(escaped)
}

/// Checks whether the character is a control character, a line or paragraph separator, or a direction mark.
pub fn is_unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_control_and_direction_characters_are_escaped() {
        assert_eq!(printable("c-1 \u{e4}\u{5b57}\\\""), "c-1 \u{e4}\u{5b57}\\\"");
        assert_eq!(printable("a\u{1b}[2J\nb\t\u{9b}"), "a\\u{1b}[2J\\nb\\t\\u{9b}");
        assert_eq!(printable("a\u{202e}b\u{2066}\u{2028}"), "a\\u{202e}b\\u{2066}\\u{2028}");
    }
}
