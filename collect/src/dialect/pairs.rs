//! The parameters of a URL or a form, not yet decoded: whether a plus sign is a space depends on the parameter.

use percent_encoding::percent_decode_str;

/// Maximum number of parameters; a report has about thirty.
const PAIRS_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Pairs<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Pairs<'a> {
    /// Splits a query and a form. Returns `None` if there are too many parameters.
    pub fn parse(query: &'a str, form: &'a str) -> Option<Self> {
        let parts = [query, form].into_iter().flat_map(|text| text.split('&'));
        let pairs = parts.filter(|part| !part.is_empty());
        let pairs = pairs.map(|part| part.split_once('=').unwrap_or((part, "")));
        let pairs: Vec<_> = pairs.take(PAIRS_MAX + 1).collect();
        (pairs.len() <= PAIRS_MAX).then_some(Self(pairs))
    }

    /// Returns the first value of a parameter that is not empty, decoded; `has_spaces` is true if a plus sign is a
    /// space.
    pub fn value(&self, name: &str, has_spaces: bool) -> Option<String> {
        let found = self.0.iter().find(|(key, value)| *key == name && !value.is_empty());
        found.map(|(_, value)| decode(value, has_spaces))
    }

    /// Returns the names, each once, in their order.
    pub fn names(&self) -> impl Iterator<Item = &'a str> {
        let is_first = move |index: usize, name: &str| {
            self.0.iter().take(index).all(|(other, _)| *other != name)
        };
        let pairs = self.0.iter().enumerate();
        pairs.filter(move |(index, (name, _))| is_first(*index, name)).map(|(_, (name, _))| *name)
    }
}

fn decode(value: &str, has_spaces: bool) -> String {
    let decode = |value: &str| percent_decode_str(value).decode_utf8_lossy().into_owned();
    if has_spaces { decode(&value.replace('+', " ")) } else { decode(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, name: &str, has_spaces: bool, expected: Option<&str>) {
        let pairs = Pairs::parse(query, "").unwrap();
        assert_eq!(pairs.value(name, has_spaces).as_deref(), expected, "{query}");
    }

    #[test]
    fn values_are_decoded_once() {
        check("a=1&b=2", "b", false, Some("2"));
        check("a=1&a=2", "a", false, Some("1"));
        check("a=&a=2", "a", false, Some("2"));
        check("a=%2520", "a", false, Some("%20"));
        check("a=x%3Dy=z", "a", false, Some("x=y=z"));
        check("a=b+c%2Bd", "a", true, Some("b c+d"));
        check("a=b+c%2Bd", "a", false, Some("b+c+d"));
        check("a=%FF", "a", false, Some("\u{fffd}"));
        check("a=%E5%B7%A8", "a", false, Some("巨"));
        check("a=100%", "a", false, Some("100%"));
        check("a", "a", false, None);
        check("", "a", false, None);
        check("&&", "", false, None);
    }

    #[test]
    fn names_are_listed_once() {
        let pairs = Pairs::parse("b=1&a&b=2", "c=&a=1").unwrap();
        assert_eq!(pairs.names().collect::<Vec<_>>(), ["b", "a", "c"]);
    }

    #[test]
    fn a_form_follows_the_query() {
        let pairs = Pairs::parse("a=1", "a=2&b=3").unwrap();
        assert_eq!(pairs.value("a", false).as_deref(), Some("1"));
        assert_eq!(pairs.value("b", false).as_deref(), Some("3"));
    }

    #[test]
    fn the_number_of_parameters_is_limited() {
        assert!(Pairs::parse(&"a=1&".repeat(PAIRS_MAX), "").is_some());
        assert!(Pairs::parse(&"a=1&".repeat(PAIRS_MAX), "b=1").is_none());
    }
}
