//! Bytes as text.

use std::fmt::Write;

/// Returns two digits for each byte.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a String takes any text");
    }
    text
}
