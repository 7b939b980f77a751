//! The address of a running Redis, as a URL: `redis://[user[:password]@]host[:port][/database]`.

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceUrl {
    /// `host:port`.
    pub(super) address: String,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: Option<u64>,
}

impl SourceUrl {
    /// Parses a URL; `None`: the text is none.
    ///
    /// # Errors
    /// The text says what is wrong with the URL. It does not show the password.
    pub(super) fn parse(text: &str) -> Result<Option<SourceUrl>, String> {
        if text.starts_with("rediss://") {
            return Err(
                "rediss:// is not supported: connect by redis:// through a tunnel that encrypts"
                    .to_owned(),
            );
        }
        let Some(rest) = text.strip_prefix("redis://") else {
            return Ok(None);
        };
        let (credentials, place) = match rest.rsplit_once('@') {
            Some((credentials, place)) => (Some(credentials), place),
            None => (None, rest),
        };
        let (user, password) = match credentials.map(|text| text.split_once(':')) {
            None => (None, None),
            Some(None) => (credentials, None),
            Some(Some((user, password))) => (Some(user), Some(password)),
        };
        let decoded = |text: &str| percent_decoded(text).ok_or("a % in the user or the password");
        let user = user.filter(|user| !user.is_empty()).map(decoded);
        let (address, database) = match place.split_once('/') {
            None | Some((_, "")) => (place.trim_end_matches('/'), None),
            Some((address, number)) => {
                let number = number.parse().map_err(|_| {
                    format!("redis://…/{number}: behind / stands the number of a database")
                })?;
                (address, Some(number))
            }
        };
        if address.is_empty() {
            return Err("redis://: the host is missing".to_owned());
        }
        // An address of IPv6 stands in brackets.
        let has_port = address.rfind(':') > address.rfind(']');
        Ok(Some(SourceUrl {
            address: match has_port {
                true => address.to_owned(),
                false => format!("{address}:6379"),
            },
            user: user.transpose()?,
            password: password.map(decoded).transpose()?,
            database,
        }))
    }
}

/// Decodes `%XX`; `None`: something else follows a `%`.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, Option<String>, Option<String>, Option<u64>) {
        let url = SourceUrl::parse(text).unwrap().unwrap();
        (url.address, url.user, url.password, url.database)
    }

    #[test]
    fn urls_have_a_host_and_what_is_needed_besides() {
        let some = |text: &str| Some(text.to_owned());
        for (text, expected) in [
            ("redis://a", ("a:6379".to_owned(), None, None, None)),
            ("redis://a:1/", ("a:1".to_owned(), None, None, None)),
            (
                "redis://[::1]/3",
                ("[::1]:6379".to_owned(), None, None, Some(3)),
            ),
            (
                "redis://:p%40%3a@a:1",
                ("a:1".to_owned(), None, some("p@:"), None),
            ),
            ("redis://u@a:1", ("a:1".to_owned(), some("u"), None, None)),
            (
                "redis://u:p:q@a:1/0",
                ("a:1".to_owned(), some("u"), some("p:q"), Some(0)),
            ),
        ] {
            assert_eq!(parts(text), expected, "{text}");
        }
        assert_eq!(SourceUrl::parse("dump.rdb"), Ok(None));
        for wrong in ["redis://", "redis://a/x", "redis://:%zz@a", "rediss://a"] {
            assert!(SourceUrl::parse(wrong).is_err(), "{wrong}");
        }
    }
}
