//! Lists of names as people type them, and as they stand in addresses.

use crate::query::parameter::parts;
#[cfg(test)]
use crate::query::parameter::quoted;

/// The names of a list as people write it: spaces beside a comma are of no name, but for those in
/// quotes.
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
    fn lists_are_read_as_people_write_them() {
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
