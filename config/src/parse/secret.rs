//! Secrets, set as a value or by the path of a file. No message, log or debug output may show them.

use std::fmt;
use std::io::Read;

use super::error::Problem;

/// A password, token or key. `Debug` and `Display` never show it; [`Secret::expose`] returns it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

/// The prefix of every token, so that a token is recognised anywhere.
pub const TOKEN_PREFIX: &str = "adt_";

/// The text that replaces a secret.
const HIDDEN: &str = "(not shown)";

/// Maximum length of a secret file, so that a wrong file is not read whole.
const BYTES_MAX: u64 = 64 << 10;

impl Secret {
    /// Returns the secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        if text.is_empty() { Err(EXPECTED.into()) } else { Ok(Self(text.into())) }
    }

    /// Reads the secret from a file; removes one trailing newline.
    pub(crate) fn from_file(path: &str) -> Result<Self, Problem> {
        let mut text = String::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text))
            .map_err(|error| format!("the file cannot be read, {error}"))?;
        if text.len() as u64 > BYTES_MAX {
            return Err("the file is too long, expected a secret of at most 64 KiB".into());
        }
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let secret = line.strip_suffix('\r').unwrap_or(line);
        if secret.is_empty() {
            return Err("the file is empty, expected a secret".into());
        }
        Ok(Self(secret.into()))
    }
}

pub(crate) const EXPECTED: &str =
    r#"expected a non-empty string, or a file as in { file = "/run/secrets/name" }"#;

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(HIDDEN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(HIDDEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(content: &[u8]) -> Result<Secret, Problem> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        std::fs::write(&path, content).unwrap();
        Secret::from_file(path.to_str().unwrap())
    }

    #[track_caller]
    fn check(content: &[u8], expected: &str) {
        assert_eq!(read_back(content).unwrap().expose(), expected);
    }

    #[track_caller]
    fn check_wrong(content: &[u8], expected: &str) {
        let problem = read_back(content).unwrap_err();
        assert!(problem.starts_with(expected), "{problem}");
    }

    #[test]
    fn one_trailing_newline_is_removed() {
        check(b"hunter2", "hunter2");
        check(b"hunter2\n", "hunter2");
        check(b"hunter2\r\n", "hunter2");
        check(b"hunter2\n\n", "hunter2\n");
        check(b" hunter 2 ", " hunter 2 ");
        check(b"a\nb\n", "a\nb");
    }

    #[test]
    fn a_file_without_a_secret_is_an_error() {
        check_wrong(b"", "the file is empty");
        check_wrong(b"\n", "the file is empty");
        check_wrong(b"\xff\xfe", "the file cannot be read, stream did not contain valid UTF-8");
        check_wrong(&vec![b'x'; 1 << 17], "the file is too long");
        assert!(Secret::from_file("/").unwrap_err().starts_with("the file cannot be read"));
    }

    #[test]
    fn a_secret_is_never_displayed() {
        let secret = Secret::parse("hunter2").unwrap();
        assert_eq!(
            format!("{secret} {secret:?} {:#?}", Some(&secret)).matches("hunter2").count(),
            0
        );
    }
}
