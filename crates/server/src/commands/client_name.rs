//! The names that clients give themselves.

use crate::refusal::Refusal;

/// The error for a name with other characters.
pub(super) const BAD_NAME: &str =
    "ERR Client names cannot contain spaces, newlines or special characters.";

/// Checks that a name consists of visible characters of ASCII.
///
/// # Errors
/// Returns `bad` if it does not.
pub(super) fn check_name(name: &[u8], bad: &'static str) -> Result<(), Refusal> {
    let fine = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    if fine {
        Ok(())
    } else {
        Err(Refusal::Text(bad))
    }
}
