//! Patterns of LIKE: `%` stands for any text, `_` for a character, and `\` before either, or before
//! any other character, for that character itself.

/// A pattern, split into pieces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pattern {
    /// The pieces between the `%`; there is at least one.
    pieces: Vec<RowPiece>,
}

/// Bytes that are found as a whole; `None` stands for any character.
type RowPiece = Vec<Option<u8>>;

impl Pattern {
    /// Splits a pattern into pieces.
    pub(crate) fn new(pattern: &str) -> Pattern {
        let mut pieces = vec![RowPiece::new()];
        let mut bytes = pattern.bytes().peekable();
        while let Some(byte) = bytes.next() {
            let piece = pieces.last_mut().expect("there is one");
            match byte {
                b'%' => pieces.push(RowPiece::new()),
                b'_' => piece.push(None),
                b'\\' => piece.push(Some(bytes.next().unwrap_or(b'\\'))),
                byte => piece.push(Some(byte)),
            }
        }
        Pattern { pieces }
    }

    /// Returns `true` if a text matches the pattern.
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        let (first, rest) = self.pieces.split_first().expect("there is one");
        let Some(mut at) = matches_at(first, text, 0) else {
            return false;
        };
        let Some((last, middle)) = rest.split_last() else {
            return at == text.len();
        };
        // The earliest place for each piece leaves the most text for the pieces after it.
        for piece in middle {
            match find(piece, text, at) {
                Some(end) => at = end,
                None => return false,
            }
        }
        matches_end(last, text, at)
    }
}

/// Returns the end of a piece that matches at this place; `None` if it does not match.
fn matches_at(piece: &[Option<u8>], text: &[u8], mut at: usize) -> Option<usize> {
    for wanted in piece {
        let found = *text.get(at)?;
        match wanted {
            Some(wanted) if *wanted != found => return None,
            Some(_) => at += 1,
            None => at = next(text, at),
        }
    }
    Some(at)
}

/// Returns the end of the character that begins here.
fn next(text: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while text.get(end).is_some_and(|byte| byte & 0xC0 == 0x80) {
        end += 1;
    }
    end
}

fn find(piece: &[Option<u8>], text: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        if let Some(end) = matches_at(piece, text, at) {
            return Some(end);
        }
        if at >= text.len() {
            return None;
        }
        at = next(text, at);
    }
}

/// Returns `true` if a piece matches at the text's end, and does not begin before `from`.
fn matches_end(piece: &[Option<u8>], text: &[u8], from: usize) -> bool {
    let mut at = text.len();
    for wanted in piece.iter().rev() {
        if at <= from {
            return false;
        }
        at -= 1;
        match wanted {
            Some(wanted) if *wanted != text[at] => return false,
            Some(_) => {}
            None => {
                while at > from && text[at] & 0xC0 == 0x80 {
                    at -= 1;
                }
            }
        }
    }
    at >= from
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    fn check(pattern: &str, text: &str, expect: bool) {
        let found = Pattern::new(pattern).matches(text.as_bytes());
        assert_eq!(found, expect, "{text:?} like {pattern:?}");
    }

    #[test]
    fn patterns() {
        for (pattern, text, expect) in [
            ("", "", true),
            ("", "a", false),
            ("%", "", true),
            ("a%", "abc", true),
            ("%c", "abc", true),
            ("%b%", "abc", true),
            ("a_c", "abc", true),
            ("a_c", "aéc", true),
            ("_", "é", true),
            ("__", "é", false),
            ("%_", "é", true),
            ("%é_", "xé", false),
            ("a%b%c", "axxbxxc", true),
            ("a%b%c", "axxcxxb", false),
            ("ab%b", "ab", false),
            ("ab%b", "abb", true),
            ("%special%requests%", "very special  requests!", true),
            ("%special%requests%", "requests special", false),
            (r"100\%", "100%", true),
            (r"100\%", "1000", false),
            (r"a\_b", "a_b", true),
            (r"a\_b", "axb", false),
            (r"a\\b", r"a\b", true),
            (r"a\", r"a\", true),
            ("%a%a", "a", false),
            ("%a%a", "aa", true),
            ("%%", "", true),
            ("_%_", "é", false),
            ("_%_", "éé", true),
        ] {
            check(pattern, text, expect);
        }
    }
}
