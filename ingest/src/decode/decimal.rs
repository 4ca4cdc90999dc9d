//! Plain decimals, kept exactly as written.

use super::field_error::FieldError;

/// Maximum length of a decimal.
const BYTES_MAX: usize = 64;

/// Describes the allowed values in error messages.
pub const ALLOWED: &str = "a plain decimal such as 9.99, without exponent, of at most 64 \
                                   characters";

/// Returns the text if it is a decimal or empty.
pub fn checked(text: &str) -> Result<Box<str>, FieldError> {
    if text.is_empty() || is_plain_decimal(text) {
        Ok(text.into())
    } else {
        Err(FieldError::bad_value("revenue", "not a plain decimal", ALLOWED))
    }
}

/// Checks for an optional sign, digits, and optionally a point and further digits.
fn is_plain_decimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.len() <= BYTES_MAX && digits(whole) && digits(fraction)
}
