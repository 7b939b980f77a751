//! Who clients are: what they prove it with, and never in a log.

use std::fmt;

use bytes::Bytes;

/// What a client has answered when a node asked who it is, and the node has accepted. Connections
/// that clients of the same answer share give it, too.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Credential(Bytes);

impl Credential {
    /// Of an answer that nodes with an authenticator of this class have accepted.
    /// `PasswordAuthenticator` looks at a name and a password, and not at what stands before them: by
    /// that, one user could have as many credentials as it wants.
    pub(crate) fn accepted(token: &[u8], class: &str) -> Credential {
        let parts: Vec<&[u8]> = token.split(|byte| *byte == 0).collect();
        let is_plain = class.rsplit('.').next() == Some("PasswordAuthenticator");
        match parts[..] {
            [_, user, password] if is_plain => Credential([b"", user, password].join(&0).into()),
            _ => Credential(Bytes::copy_from_slice(token)),
        }
    }

    /// What `PasswordAuthenticator` wants: a name and a password.
    pub(crate) fn of_password(user: &str, password: &str) -> Credential {
        Credential(Bytes::from(
            [b"", user.as_bytes(), password.as_bytes()].join(&0),
        ))
    }

    /// The answer itself.
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
