//! Texts of clients that responses repeat.

use std::fmt;
use std::ops::Deref;

use serde::Serialize;

/// Maximum number of characters that are repeated of a text.
pub(crate) const CHARS_MAX: usize = 256;

/// A text that a client sent, as errors repeat it: a long one is cut and ends with an ellipsis. Errors have no other
/// texts of clients, so an error response is small whatever the request. Logs have none at all.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Echo(Box<str>);

impl From<&str> for Echo {
    fn from(text: &str) -> Self {
        match text.char_indices().nth(CHARS_MAX) {
            Some((end, _)) => Self(format!("{}\u{2026}", &text[..end]).into()),
            None => Self(text.into()),
        }
    }
}

impl Deref for Echo {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Echo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, out)
    }
}

impl fmt::Display for Echo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut() {
        let check = |text: &str, expected: &str| {
            let echo = Echo::from(text);
            assert_eq!(&*echo, expected);
            assert_eq!(echo.to_string(), expected);
            assert_eq!(format!("{echo:?}"), format!("{expected:?}"));
            assert_eq!(serde_json::to_value(&echo).unwrap(), expected);
        };
        check("", "");
        check("a\n\"b\"", "a\n\"b\"");
        for letter in ["x", "\u{fc}", "\u{1f980}"] {
            let longest = letter.repeat(CHARS_MAX);
            check(&longest, &longest);
            check(&letter.repeat(CHARS_MAX + 1), &format!("{longest}\u{2026}"));
            check(&letter.repeat(60_000), &format!("{longest}\u{2026}"));
        }
    }
}
