//! Patterns of keys (`KEYS`, `SCAN … MATCH`), of channels (`PSUBSCRIBE`) and of settings (`CONFIG GET`), as
//! Redis understands them.
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
//! Time is at most the product of both lengths: only the last `*` is ever tried again. With long
//! texts and patterns that can be seconds, so that a [`PatternMatch`] counts its steps and can be
//! interrupted.

use crate::database;

/// Returns `true` if `text` matches `pattern`.
pub fn matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    let mut steps = usize::MAX;
    let result = PatternMatch::default().resume(pattern, text, ignore_case, &mut steps);
    result.unwrap_or(false)
}

/// Returns `true` if `text` matches `pattern`. Subtracts the steps of the comparison from `steps`,
/// as far as there are that many.
pub fn matches_counted(pattern: &[u8], text: &[u8], steps: &mut usize) -> bool {
    let (mut search, mut rest) = (PatternMatch::default(), usize::MAX);
    search
        .resume(pattern, text, false, steps)
        .or_else(|| search.resume(pattern, text, false, &mut rest))
        .unwrap_or(false)
}

/// The state of a comparison of one text with one pattern.
#[derive(Default)]
pub struct PatternMatch {
    /// The position in the pattern.
    p: usize,
    /// The position in the text.
    t: usize,
    /// Where to continue in both when what follows the last star did not match.
    star: Option<(usize, usize)>,
}

impl PatternMatch {
    /// Continues for at most `steps` steps, and subtracts those that it needed. Returns `true` if
    /// the text matches, or `None` if the steps did not suffice.
    pub fn resume(
        &mut self,
        pattern: &[u8],
        text: &[u8],
        ignore_case: bool,
        steps: &mut usize,
    ) -> Option<bool> {
        if text.is_empty() {
            return Some(pattern.is_empty() || pattern == b"*");
        }
        while *steps > 0 {
            *steps -= 1;
            if pattern.get(self.p) == Some(&b'*') {
                self.p += 1;
                self.star = Some((self.p, self.t));
                // Behind a last star everything matches.
                if self.p == pattern.len() {
                    return Some(true);
                }
                continue;
            }
            if self.t == text.len() {
                // Behind the end of the text only stars match, and the last one was passed.
                return Some(self.p == pattern.len());
            }
            match one(&pattern[self.p..], text[self.t], ignore_case) {
                (true, used) => {
                    *steps = steps.saturating_sub(used - 1);
                    self.p += used;
                    self.t += 1;
                }
                (false, used) => {
                    *steps = steps.saturating_sub(used.saturating_sub(1));
                    let Some((after, from)) = &mut self.star else {
                        return Some(false);
                    };
                    *from += 1;
                    (self.p, self.t) = (*after, *from);
                }
            }
        }
        None
    }
}

/// Returns `true` if the first item of the pattern matches `byte`, and the item's length.
fn one(pattern: &[u8], byte: u8, ignore_case: bool) -> (bool, usize) {
    let fold = |byte: u8| {
        if ignore_case {
            byte.to_ascii_lowercase()
        } else {
            byte
        }
    };
    match pattern {
        [] => (false, 0),
        [b'?', ..] => (true, 1),
        [b'[', set @ ..] => {
            let (found, used) = in_set(set, byte, fold);
            (found, used + 1)
        }
        [b'\\', escaped, ..] => (fold(*escaped) == fold(byte), 2),
        [plain, ..] => (fold(*plain) == fold(byte), 1),
    }
}

/// Returns `true` if `byte` is in the set that starts behind a `[`, and the length of the set. A
/// set without its `]` ends with the pattern.
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

/// Returns the bytes with which every match starts.
pub fn prefix(pattern: &[u8]) -> &[u8] {
    let end = pattern
        .iter()
        .position(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'));
    &pattern[..end.unwrap_or(pattern.len())]
}

/// Returns the range of the stored keys of a database that can match a pattern.
#[must_use]
pub fn range(database: u16, pattern: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    let prefix = prefix(pattern);
    let from = database::qualified(database, prefix);
    let end = database::end_of(&from);
    let to = behind_prefix(prefix).map(|to| database::qualified(database, &to));
    (from, Some(to.map_or(end.clone(), |to| to.min(end))))
}

/// Returns the least text that is greater than every text that starts with `prefix`, if there is
/// one.
pub fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
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
    fn an_interrupted_match_takes_bounded_steps_and_ends_the_same() {
        let pattern = "*a".repeat(5) + &"a".repeat(500) + "b*[abc]";
        for (text, expected) in [
            ("a".repeat(2000), false),
            ("a".repeat(2000) + "b", false),
            ("a".repeat(2000) + "bc", true),
        ] {
            let (mut search, mut turns) = (PatternMatch::default(), 0);
            let result = loop {
                turns += 1;
                let mut steps = 1000;
                let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
                if let Some(result) = search.resume(pattern, text, false, &mut steps) {
                    break result;
                }
                assert_eq!(steps, 0);
            };
            assert_eq!(result, expected, "{} bytes", text.len());
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes(), false),
                expected
            );
            assert!(turns > 10, "{turns}");
        }
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
