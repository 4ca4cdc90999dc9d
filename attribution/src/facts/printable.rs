//! Values from outside in messages and on terminals: what would move the cursor, begin a line or
//! turn the direction of writing is shown and not done.

use std::borrow::Cow;
use std::fmt::Write;

/// The text with its control characters escaped: a newline as `\n`, an escape as `\u{1b}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_unprintable(letter) {
            // Writing to a text does not fail.
            let _ = write!(shown, "{}", letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

/// Control characters, ends of lines and paragraphs, and marks of direction.
fn is_unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_does_something_is_escaped() {
        assert_eq!(printable("c-1 \u{e4}\u{5b57}\\\""), "c-1 \u{e4}\u{5b57}\\\"");
        assert_eq!(printable("a\u{1b}[2J\nb\t\u{9b}"), "a\\u{1b}[2J\\nb\\t\\u{9b}");
        assert_eq!(printable("a\u{202e}b\u{2066}\u{2028}"), "a\\u{202e}b\\u{2066}\\u{2028}");
    }
}
