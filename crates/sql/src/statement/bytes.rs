//! Bytes as PostgreSQL's texts of type `bytea`.
//!
//! | form | bytes |
//! |---|---|
//! | `\\x00ff` | two hexadecimal digits for each |
//! | any other | those of the text, where `\\ooo` is a byte by its octal digits, and `\\\\` a backslash |

use std::fmt::Write;

use datafusion::common::{Result, plan_err};

/// Returns the hexadecimal digits of the bytes that a text says.
///
/// # Errors
/// Fails when the text is not of PostgreSQL's form.
pub(super) fn hexadecimal(text: &str) -> Result<String> {
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits: String = digits.chars().filter(|c| !c.is_whitespace()).collect();
        let is_whole = digits.len().is_multiple_of(2);
        return match is_whole && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            true => Ok(digits),
            false => plan_err!("invalid hexadecimal data in {text:?}, of type bytea"),
        };
    }
    let mut digits = String::new();
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let (byte, behind) = match (first, behind) {
            (b'\\', [b'\\', behind @ ..]) => (b'\\', behind),
            (
                b'\\',
                [
                    a @ b'0'..=b'3',
                    b @ b'0'..=b'7',
                    c @ b'0'..=b'7',
                    behind @ ..,
                ],
            ) => ((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'), behind),
            (b'\\', _) => return plan_err!("invalid input syntax for type bytea: {text:?}"),
            (other, behind) => (*other, behind),
        };
        let _ = write!(digits, "{byte:02x}");
        rest = behind;
    }
    Ok(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        for (text, digits) in [
            (r"\x00fF", "00fF"),
            (r"\x", ""),
            ("", ""),
            ("a\u{e4}", "61c3a4"),
            (r"a\\b\377\000", "615c62ff00"),
        ] {
            assert_eq!(hexadecimal(text).unwrap(), digits, "{text}");
        }
        for wrong in [r"\x0", r"\xyz", r"a\", r"\9", r"\400"] {
            assert!(hexadecimal(wrong).is_err(), "{wrong}");
        }
    }
}
