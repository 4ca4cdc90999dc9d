//! Guards texts that a spreadsheet would convert.
//!
//! Which numbers, dates and times it recognises depends on the program, its version and its language, so their forms
//! are not listed: any text with a digit is guarded, unless it clearly is none of them in any language.

use std::borrow::Cow;

use super::booleans::{is_boolean, is_unseen};

/// Maximum length of a string in a formula.
const FORMULA_TEXT_MAX: usize = 255;
/// No number or date has one of these characters, in any language.
const OF_NO_NUMBER: [char; 9] = ['_', ';', '=', '?', '&', '<', '>', '{', '}'];
/// A text of several lines is never converted, and LibreOffice does not accept a formula of several lines.
const LINE_ENDS: [char; 2] = ['\n', '\r'];
/// A date with the names of its day, month and part of the day has fewer letters, in any language.
const LETTERS_MAX: usize = 60;
/// Hexadecimal digits of a UUID or an MD5.
const ID_DIGITS: usize = 32;
/// Groups of letters in a number (currency, exponent) or a date (month, AM or PM).
const LETTERS_OF_NUMBER_MAX: usize = 3;

/// Signs with which a formula begins. Full-width signs count where East Asian text is typed.
const SIGNS: [char; 8] = ['=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];
/// Where a cell ends, instead of at a comma, in a spreadsheet with another list separator. It ignores the quotes of a
/// cell that does not begin at such a separator, so quotes alone protect nothing.
const OTHER_SEPARATORS: [char; 5] = [';', '|', '\t', '\r', '\n'];

/// Returns the text that a spreadsheet shows as `text`. With any list separator, no part of it begins a formula.
/// `begins_line`: with another separator than the comma, further cells of the line may belong to this one and would be
/// part of its formula, so it is not written as one.
pub(super) fn guarded(text: &str, begins_line: bool) -> Cow<'_, str> {
    let text = guarded_inside(text);
    if begins_formula(&text) {
        return format!("'{text}").into();
    }
    if !is_converted(&text) {
        return text;
    }
    match text.len() {
        ..=FORMULA_TEXT_MAX if !begins_line => format!("=\"{}\"", text.replace('"', "\"\"")).into(),
        _ => format!("'{text}").into(),
    }
}

/// Checks whether a cell with this text must be quoted: the comma separates cells, and LibreOffice accepts several
/// separators at once.
pub(super) fn must_quote(text: &str) -> bool {
    text.contains([',', '"']) || text.contains(OTHER_SEPARATORS)
}

/// Puts an apostrophe before each sign that would begin a formula after another separator.
fn guarded_inside(text: &str) -> Cow<'_, str> {
    let mut guarded = String::new();
    let (mut copied, mut is_start) = (0, false);
    for (index, character) in text.char_indices() {
        if is_start && SIGNS.contains(&character) {
            guarded.push_str(text.get(copied..index).unwrap_or_default());
            guarded.push('\'');
            copied = index;
        }
        // A quote at the start of a cell is not part of its text.
        is_start = OTHER_SEPARATORS.contains(&character)
            || (is_start && (is_blank(character) || character == '"'));
    }
    if guarded.is_empty() {
        return text.into();
    }
    guarded.push_str(text.get(copied..).unwrap_or_default());
    guarded.into()
}

/// Checks whether a text begins like a formula. Invisible characters before the sign may be dropped.
fn begins_formula(text: &str) -> bool {
    const BREAKS: [char; 3] = ['\t', '\r', '\n'];
    text.starts_with(BREAKS) || text.trim_start_matches(is_blank).starts_with(SIGNS)
}

/// Checks whether a spreadsheet may convert a text into a number, a date, a time, a boolean or an error.
fn is_converted(text: &str) -> bool {
    if text.contains(LINE_ENDS) {
        return false;
    }
    let is_error = || text.trim_start_matches(is_blank).starts_with('#');
    // No word for true or false contains a digit.
    let has_digit = text.contains(char::is_numeric) || is_counted_in_chinese(text);
    if has_digit { !is_plain(text) } else { is_error() || is_boolean(text) }
}

/// Checks whether a text with a digit is certainly neither a number nor a date.
fn is_plain(text: &str) -> bool {
    text.contains(OF_NO_NUMBER)
        || text.chars().filter(|c| c.is_alphabetic()).nth(LETTERS_MAX).is_some()
        || is_hexadecimal_id(text)
}

/// Checks for a long hexadecimal text with more groups of letters than a number has.
fn is_hexadecimal_id(text: &str) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_hexdigit();
    let bytes = text.as_bytes();
    bytes.iter().all(|byte| is_digit(byte) || *byte == b'-')
        && bytes.iter().filter(|byte| is_digit(byte)).count() >= ID_DIGITS
        && text.split(|c: char| !c.is_ascii_alphabetic()).filter(|run| !run.is_empty()).count()
            > LETTERS_OF_NUMBER_MAX
}

/// Checks for a text of only Chinese numerals and units.
fn is_counted_in_chinese(text: &str) -> bool {
    const DIGITS: &str = "〇零一二三四五六七八九十百千万亿萬億";
    const UNITS: &str = "年月日号號时時点點分秒上下午前后後元圆圓円角整正";
    text.contains(|c| DIGITS.contains(c))
        && text.chars().all(|c| !c.is_alphabetic() || DIGITS.contains(c) || UNITS.contains(c))
}

/// Checks for white space or an invisible character.
fn is_blank(character: char) -> bool {
    character.is_whitespace() || is_unseen(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(guarded(text, false), expected);
    }

    /// Checks that none of the texts, separated by `|`, is guarded.
    #[track_caller]
    fn check_plain(texts: &str) {
        texts.split('|').for_each(|text| check(text, text));
    }

    #[track_caller]
    fn check_guarded(texts: &str) {
        texts.split('|').for_each(|text| check(text, &format!("=\"{text}\"")));
    }

    #[test]
    fn formulas_stay_texts() {
        check("=1+1", "'=1+1");
        check("@SUM(A1)", "'@SUM(A1)");
        check("-2", "'-2");
        check("+49", "'+49");
        check("\tx", "'\tx");
        check("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0");
        check("\u{ff1d}1", "'\u{ff1d}1");
        for before in
            [" ", "\u{a0}", "\0", "\u{200b}", "\u{feff}", " \u{200e} ", "\u{180e}\u{3164}"]
        {
            check(&format!("{before}=1"), &format!("'{before}=1"));
        }
        check_plain("a=1|a-b|x@y");
    }

    /// A spreadsheet may have another list separator than the comma.
    #[test]
    fn no_part_of_a_text_is_a_formula() {
        check(";=1+1", ";'=1+1");
        check("a;\t =1;b|@x", "a;\t '=1;b|'@x");
        check("x\n-a", "x\n'-a");
        check("x\r\n=a", "x\r\n'=a");
        check("=a;=b", "'=a;'=b");
        check("a;\"=b", "a;\"'=b");
        check("a|\u{200b}\u{ff1d}b", "a|\u{200b}'\u{ff1d}b");
        check("5\t+1", "=\"5\t'+1\"");
        check("{\"a\":\";+b\"}", "{\"a\":\";'+b\"}");
        for plain in ["a;b", "a; b=1", "a|b-c", "a;'=b", "a,=b", "a\nb", "(X; Y)"] {
            check(plain, plain);
        }
    }

    #[test]
    fn no_line_begins_with_a_formula() {
        for (text, expected) in [("00123", "'00123"), ("TRUE", "'TRUE"), ("=1", "'=1"), ("a", "a")]
        {
            assert_eq!(guarded(text, true), expected);
        }
    }

    #[test]
    fn numbers_of_every_language_stay_texts() {
        check_guarded(
            "12345678901234567890|00123|1e10|1\u{a0}e5|e-17|1.10|0x10|5\u{200b}|5\0|CAD5",
        );
        check_guarded("1\u{a0}234|1\u{202f}234|\u{a0}12|12 |1'234|1 1/2|(5)|5-");
        check_guarded("5\u{a0}%|5%|\u{20ac}5|\u{a5}5|$5|5 USD|kr 5|R5|\\5");
        check_guarded("\u{ff12}\u{ff10}|\u{661}\u{662}|\u{967}|\u{bd}|\u{2167}|\u{3007}");
        check_guarded("\u{4e8c}\u{3007}\u{4e8c}\u{516d}|\u{4e09}\u{6708}\u{5341}\u{65e5}");
        check_guarded(&format!("{}|{}", "1".repeat(255), "1e2".repeat(10)));
        check(&"1".repeat(256), &format!("'{}", "1".repeat(256)));
        check("6.1\"", "=\"6.1\"\"\"");
    }

    #[test]
    fn dates_and_times_of_every_language_stay_texts() {
        check_guarded("3/4|MAR-3|1:30 PM|5 am|10:00AM|1/2/26 5:30 PM|2026-03-10T12:00Z");
        check_guarded("3\u{6708}10\u{65e5}|\u{ff13}\u{6708}10\u{65e5}|10. September 2026 12:30:00");
        check_guarded(
            "Donnerstag, 10. September 2026|quinta-feira, 10 de setembro de 2026|R8.3.10",
        );
        check_guarded("14|android 14|iPhone12,1|V2|site-1|c-123|10.0.0.1");
    }

    #[test]
    fn booleans_and_errors_stay_texts() {
        check_guarded("True|True | TRUE|\u{a0}tRuE|T\0RUE|\u{ff34}RUE|Wahr|FALSCH|vrai|\u{771f}");
        check_guarded("\u{43b}\u{43e}\u{436}\u{44c}|yanl\u{131}\u{15f}|#N/A|#NV| #REF!");
        check_plain("truely|not true|a#|true\n|5\n6|1\r\n2|Sep\n10");
    }

    #[test]
    fn plain_texts_are_not_guarded() {
        check_plain("|iPhone|android|may|Jan|\u{202e}txet|\u{5e7f}\u{544a}|NA|'quoted");
        check_plain("9c6d1b84-2f6e-4a7b-8c1d-0e9f8a7b6c5d|d41d8cd98f00b204e9800998ecf8427e");
        check_plain("Mozilla/5.0 (Linux; Android 14; SM-G991B)|clk_123|{\"level\":\"3\"}|a?b=1");
        check_plain(&format!("{}|\u{4e00}\u{952e}\u{6e05}\u{7406}", "z1".repeat(61)));
        // All digits, and digits with an exponent.
        check_guarded("12345678123412341234123456789012|12345678e23412341234123456789012");
        check_guarded(&format!("{}|9c6d1b84-2f6e", "z1".repeat(60)));
    }
}
