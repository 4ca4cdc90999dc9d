//! Decodes percent-encoding, which some networks leave in the values of their links.

/// Decodes percent-encoding once, and `+` as a space; `None` if the text has neither or does not become UTF-8.
pub fn decoded(text: &str) -> Option<String> {
    if !text.contains(['%', '+']) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.split_first_chunk::<2>().filter(|_| *first == b'%');
        let escape = digits.and_then(|(digits, after)| Some((hex_byte(*digits)?, after)));
        let (byte, after) = escape.unwrap_or((if *first == b'+' { b' ' } else { *first }, tail));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

fn hex_byte(digits: [u8; 2]) -> Option<u8> {
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(16 * high? + low?).ok()
}

#[cfg(test)]
mod tests {
    use super::decoded;

    #[test]
    fn escapes_are_decoded_once() {
        for (text, expected) in [
            ("%7Bcid%7d", "{cid}"),
            ("a+b%2Bc", "a b+c"),
            ("%E4%BD%A0", "\u{4f60}"),
            ("%257B", "%7B"),
            ("%%41", "%A"),
            ("100%", "100%"),
            ("%4", "%4"),
            ("%+1", "% 1"),
        ] {
            assert_eq!(decoded(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "abc", "%ff"] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }
}
