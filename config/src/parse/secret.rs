//! Values that no message, log or dump may show: given as they are, or by a file that has them.

use std::fmt;
use std::io::Read;

use super::error::Problem;

/// A password, a token, a key. It has to be asked for its text; shown it never says it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

/// What every token begins with, so that one is known as such wherever it turns up.
pub const TOKEN_PREFIX: &str = "adt_";

/// What stands in place of a secret.
const HIDDEN: &str = "(not shown)";

/// More than any secret has: a file that was meant to be another is not read whole.
const BYTES_MAX: u64 = 64 << 10;

impl Secret {
    /// The secret itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        if text.is_empty() { Err(EXPECTED.into()) } else { Ok(Self(text.into())) }
    }

    /// The content of a file without the newline that editors end it with.
    pub(crate) fn of_file(path: &str) -> Result<Self, Problem> {
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
            return Err("the file is empty, expected a secret in it".into());
        }
        Ok(Self(secret.into()))
    }
}

pub(crate) const EXPECTED: &str =
    r#"expected a text that is not empty, or a file as in { file = "/run/secrets/name" }"#;

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

    fn written(content: &[u8]) -> Result<Secret, Problem> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        std::fs::write(&path, content).unwrap();
        Secret::of_file(path.to_str().unwrap())
    }

    #[track_caller]
    fn check(content: &[u8], expected: &str) {
        assert_eq!(written(content).unwrap().expose(), expected);
    }

    #[track_caller]
    fn check_wrong(content: &[u8], expected: &str) {
        let problem = written(content).unwrap_err();
        assert!(problem.starts_with(expected), "{problem}");
    }

    #[test]
    fn one_newline_at_the_end_is_the_editors() {
        check(b"hunter2", "hunter2");
        check(b"hunter2\n", "hunter2");
        check(b"hunter2\r\n", "hunter2");
        check(b"hunter2\n\n", "hunter2\n");
        check(b" hunter 2 ", " hunter 2 ");
        check(b"a\nb\n", "a\nb");
    }

    #[test]
    fn a_file_without_a_secret_is_told() {
        check_wrong(b"", "the file is empty");
        check_wrong(b"\n", "the file is empty");
        check_wrong(b"\xff\xfe", "the file cannot be read, stream did not contain valid UTF-8");
        check_wrong(&vec![b'x'; 1 << 17], "the file is too long");
        assert!(Secret::of_file("/").unwrap_err().starts_with("the file cannot be read"));
    }

    #[test]
    fn it_is_never_shown() {
        let secret = Secret::parse("hunter2").unwrap();
        assert_eq!(
            format!("{secret} {secret:?} {:#?}", Some(&secret)).matches("hunter2").count(),
            0
        );
    }
}
