//! Patterns of `KEYS`, `SCAN … MATCH` and `CONFIG GET`, as Redis understands them.
//!
//! | pattern | matches |
//! |---|---|
//! | `*` | any bytes, also none |
//! | `?` | one byte |
//! | `[abc]` `[a-z]` `[^a]` | one byte in, or not in, the set |
//! | `\x` | `x` itself |
//!
//! The empty text is matched by the empty pattern and by `*` alone, not by `**`: so it is in Redis.
//!
//! Time is at most the product of both lengths: only the last `*` is ever tried again.

/// Whether `text` matches `pattern`.
pub(crate) fn matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    if text.is_empty() {
        return pattern.is_empty() || pattern == b"*";
    }
    let (mut p, mut t) = (0, 0);
    // Where to go on when what follows the last star did not match.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if p < pattern.len() && pattern[p] == b'*' {
            p += 1;
            star = Some((p, t));
            continue;
        }
        if t == text.len() {
            if p == pattern.len() {
                return true;
            }
            // Behind the end of the text only stars match, and the last one was passed.
            return false;
        }
        match one(&pattern[p..], text[t], ignore_case) {
            Some(used) => {
                p += used;
                t += 1;
            }
            None => match &mut star {
                Some((after, from)) => {
                    *from += 1;
                    (p, t) = (*after, *from);
                }
                None => return false,
            },
        }
    }
}

/// How many bytes of the pattern match `byte`, if they do.
fn one(pattern: &[u8], byte: u8, ignore_case: bool) -> Option<usize> {
    let fold = |byte: u8| {
        if ignore_case {
            byte.to_ascii_lowercase()
        } else {
            byte
        }
    };
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', set @ ..] => {
            let (found, used) = in_set(set, byte, fold);
            found.then_some(used + 1)
        }
        [b'\\', escaped, ..] => (fold(*escaped) == fold(byte)).then_some(2),
        [plain, ..] => (fold(*plain) == fold(byte)).then_some(1),
    }
}

/// Whether `byte` is in the set that starts behind a `[`, and how long the set is. A set without
/// its `]` ends with the pattern.
fn in_set(set: &[u8], byte: u8, fold: impl Fn(u8) -> u8) -> (bool, usize) {
    let inverted = set.first() == Some(&b'^');
    let mut at = usize::from(inverted);
    let mut found = false;
    loop {
        match &set[at.min(set.len())..] {
            [] => return (found != inverted, set.len()),
            [b']', ..] => return (found != inverted, at + 1),
            [b'\\', escaped, ..] => {
                found |= *escaped == byte;
                at += 2;
            }
            [low, b'-', high, ..] => {
                let (low, high) = (fold(*low.min(high)), fold(*low.max(high)));
                found |= (low..=high).contains(&fold(byte));
                at += 3;
            }
            [plain, ..] => {
                found |= fold(*plain) == fold(byte);
                at += 1;
            }
        }
    }
}

/// The bytes with which every match starts.
pub(crate) fn prefix(pattern: &[u8]) -> &[u8] {
    let end = pattern
        .iter()
        .position(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'));
    &pattern[..end.unwrap_or(pattern.len())]
}

/// The least bytes that are greater than everything that starts with `prefix`, if there are any.
pub(crate) fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, yes, no) in [
            ("*", vec!["", "a", "abc"], vec![]),
            ("", vec![""], vec!["a"]),
            ("a*c", vec!["ac", "abc", "acc"], vec!["a", "ab", "acd"]),
            ("a*b*c", vec!["abc", "axbxbxc"], vec!["acb", "ab"]),
            ("h?llo", vec!["hello", "hallo"], vec!["hllo", "heello"]),
            ("h[ae]llo", vec!["hello", "hallo"], vec!["hillo"]),
            ("h[^e]llo", vec!["hallo", "hbllo"], vec!["hello"]),
            ("h[a-c]llo", vec!["hallo", "hcllo"], vec!["hdllo"]),
            ("h[c-a]llo", vec!["hbllo"], vec!["hdllo"]),
            (r"h\*llo", vec!["h*llo"], vec!["hello"]),
            (r"[\]]", vec!["]"], vec!["\\"]),
            ("[", vec![], vec!["[", "a"]),
            ("[a", vec!["a"], vec!["["]),
            ("a**", vec!["a", "ab"], vec!["b"]),
            ("**", vec!["a", "ab"], vec![""]),
            (r"a\", vec![r"a\"], vec!["a"]),
        ] {
            for text in yes {
                assert!(
                    matches(pattern.as_bytes(), text.as_bytes(), false),
                    "{pattern} {text}"
                );
            }
            for text in no {
                assert!(
                    !matches(pattern.as_bytes(), text.as_bytes(), false),
                    "{pattern} {text}"
                );
            }
        }
        assert!(matches(b"MAX*", b"maxmemory", true));
        assert!(!matches(b"MAX*", b"maxmemory", false));
    }

    #[test]
    fn stars_do_not_explode() {
        let pattern = "a*".repeat(50) + "b";
        assert!(!matches(
            pattern.as_bytes(),
            "a".repeat(10_000).as_bytes(),
            false
        ));
    }

    #[test]
    fn prefixes_bound_the_keys() {
        assert_eq!(prefix(b"user:*"), b"user:");
        assert_eq!(prefix(b"plain"), b"plain");
        assert_eq!(behind_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(behind_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(behind_prefix(b"\xff"), None);
        assert_eq!(behind_prefix(b""), None);
    }
}
