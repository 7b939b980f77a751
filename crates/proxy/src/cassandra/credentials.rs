//! The proofs of clients' identities. They never appear in a log.

use std::fmt;

use bytes::Bytes;

/// A client's answer to a node's request to authenticate, which the node has accepted. Connections that
/// clients with the same answer share give this answer as well.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Credential(Bytes);

impl Credential {
    /// Makes a credential of an answer that nodes with an authenticator of this class have accepted.
    /// `PasswordAuthenticator` reads a name and a password, and ignores the text before them: by
    /// varying that, one user could have any number of credentials, so it is removed.
    pub(crate) fn accepted(token: &[u8], class: &str) -> Credential {
        let parts: Vec<&[u8]> = token.split(|byte| *byte == 0).collect();
        let is_plain = class.rsplit('.').next() == Some("PasswordAuthenticator");
        match parts[..] {
            [_, user, password] if is_plain => Credential([b"", user, password].join(&0).into()),
            _ => Credential(Bytes::copy_from_slice(token)),
        }
    }

    /// Makes the credential that `PasswordAuthenticator` requires: a name and a password.
    pub(crate) fn of_password(user: &str, password: &str) -> Credential {
        Credential(Bytes::from(
            [b"", user.as_bytes(), password.as_bytes()].join(&0),
        ))
    }

    /// Returns the answer itself.
    pub(crate) fn token(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_given_and_never_shown() {
        let credential = Credential::of_password("cassandra", "secret");
        assert_eq!(credential.token(), b"\0cassandra\0secret");
        assert!(!format!("{credential:?}").contains("secret"));
    }

    #[test]
    fn what_is_not_looked_at_makes_no_other_credential() {
        let class = "org.apache.cassandra.auth.PasswordAuthenticator";
        let plain = Credential::of_password("ann", "secret");
        let same = |token: &[u8], class| Credential::accepted(token, class) == plain;
        assert!(same(b"\0ann\0secret", class));
        assert!(same(b"anybody\0ann\0secret", class));
        assert!(!same(b"\0ann\0other", class));
        assert!(!same(b"\0ann\0secret\0", class));
        assert!(!same(b"anybody\0ann\0secret", "com.example.Other"));
    }
}
