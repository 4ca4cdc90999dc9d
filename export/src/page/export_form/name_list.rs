//! Parses lists of names as people type them.

use crate::query::parameter::parts;
#[cfg(test)]
use crate::query::parameter::quoted;

/// Splits a list at commas. Spaces around commas are dropped, except in quotes.
pub(crate) fn names(list: &str) -> Vec<String> {
    let is_open = |item: &&mut String| item.starts_with('"') && item.matches('"').count() % 2 == 1;
    let mut items: Vec<String> = Vec::new();
    for piece in list.split(',') {
        match items.last_mut().filter(is_open) {
            Some(item) => item.extend([",", piece]),
            None => items.push(piece.trim_start().to_owned()),
        }
    }
    let items: Vec<_> = items.iter().map(|item| item.trim_end()).collect();
    parts(&items.join(",")).into_iter().map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_around_commas_are_dropped() {
        let check = |list, expected: &[&str]| {
            assert_eq!(names(list), expected, "{list}");
            assert_eq!(names(&quoted(expected)), expected, "{list}");
        };
        check("a", &["a"]);
        check(" a , b c ,d", &["a", "b c", "d"]);
        check("a,", &["a", ""]);
        check(r#"a, " b ", "c, d""#, &["a", " b ", "c, d"]);
        check(r#" "a, ""b"" " , c"#, &[r#"a, "b" "#, "c"]);
        check(r#"5" , a"#, &[r#"5""#, "a"]);
    }
}
