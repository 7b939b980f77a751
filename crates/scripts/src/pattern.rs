//! Lua's patterns.
//!
//! A match counts its steps, and gives way to the host now and then; its nesting is bounded. Lua's
//! own matcher does neither: a short pattern can take it years, or more stack than there is.

use crate::failure::FunctionFailure;
use crate::script_context::{Pace, ScriptContext};

/// The most captures of a pattern.
const MAX_CAPTURES: usize = 32;
/// The deepest nesting of a match: that of its captures and repetitions.
const MAX_DEPTH: usize = 200;
/// The character that gives others a meaning.
const ESCAPE: u8 = b'%';

/// A part of the text that a match has captured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Capture {
    /// The bytes from one place to another.
    Text(usize, usize),
    /// A place.
    Position(usize),
    /// The end is missing.
    Open(usize),
}

/// The captures of a match.
#[derive(Debug)]
pub(crate) struct Captures {
    list: [Capture; MAX_CAPTURES],
    len: usize,
}

impl Default for Captures {
    fn default() -> Captures {
        Captures {
            list: [Capture::Position(0); MAX_CAPTURES],
            len: 0,
        }
    }
}

impl Captures {
    /// Returns the number of captures.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns a capture of a match of `start..end`, which is the first one if there is none.
    pub(crate) fn get(
        &self,
        index: usize,
        (start, end): (usize, usize),
    ) -> Result<Capture, FunctionFailure> {
        match self.list[..self.len].get(index) {
            Some(Capture::Open(_)) => Err(FunctionFailure::message("unfinished capture")),
            Some(&capture) => Ok(capture),
            None if index == 0 => Ok(Capture::Text(start, end)),
            None => Err(FunctionFailure::message("invalid capture index")),
        }
    }
}

/// A search for a pattern in a text.
pub(crate) struct Matcher<'a> {
    text: &'a [u8],
    /// The pattern, up to its first zero.
    pattern: &'a [u8],
    captures: &'a mut Captures,
    context: &'a ScriptContext,
    pace: &'a mut Pace,
    depth: usize,
}

type Match = Result<Option<usize>, FunctionFailure>;

impl<'a> Matcher<'a> {
    /// Creates a search.
    pub(crate) fn new(
        text: &'a [u8],
        pattern: &'a [u8],
        captures: &'a mut Captures,
        context: &'a ScriptContext,
        pace: &'a mut Pace,
    ) -> Matcher<'a> {
        let end = pattern.iter().position(|&byte| byte == 0);
        Matcher {
            text,
            pattern: &pattern[..end.unwrap_or(pattern.len())],
            captures,
            context,
            pace,
            depth: 0,
        }
    }

    /// Returns the end of a match of the pattern, from `pattern` on, that begins at `at`.
    pub(crate) fn matches(&mut self, at: usize, pattern: usize) -> Match {
        self.captures.len = 0;
        self.depth = 0;
        self.rest(at, pattern)
    }

    /// Returns the next byte of the text, or 0 at the end.
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    /// Returns a byte of the pattern, or 0 at the end.
    fn symbol(&self, at: usize) -> u8 {
        self.pattern.get(at).copied().unwrap_or(0)
    }

    fn step(&mut self) -> Result<(), FunctionFailure> {
        self.pace.step(self.context, 0)
    }

    /// Matches the rest of the pattern, one level deeper.
    fn rest(&mut self, at: usize, pattern: usize) -> Match {
        if self.depth == MAX_DEPTH {
            return Err(FunctionFailure::message("pattern too complex"));
        }
        self.depth += 1;
        let result = self.items(at, pattern);
        self.depth -= 1;
        result
    }

    fn items(&mut self, mut at: usize, mut pattern: usize) -> Match {
        loop {
            self.step()?;
            match (self.symbol(pattern), self.symbol(pattern + 1)) {
                (0, _) => return Ok(Some(at)),
                (b'(', b')') => return self.open(at, pattern + 2, Capture::Position(at)),
                (b'(', _) => return self.open(at, pattern + 1, Capture::Open(at)),
                (b')', _) => return self.close(at, pattern + 1),
                (b'$', 0) => return Ok((at == self.text.len()).then_some(at)),
                (ESCAPE, b'b') => match self.balanced(at, pattern + 2)? {
                    Some(end) => (at, pattern) = (end, pattern + 4),
                    None => return Ok(None),
                },
                (ESCAPE, b'f') => match self.frontier(at, pattern + 2)? {
                    Some(end) => pattern = end,
                    None => return Ok(None),
                },
                (ESCAPE, digit @ b'0'..=b'9') => match self.back_reference(at, digit)? {
                    Some(end) => (at, pattern) = (end, pattern + 2),
                    None => return Ok(None),
                },
                _ => {
                    let end = self.class_end(pattern)?;
                    let is_single = self.is_single(at, pattern, end);
                    match self.symbol(end) {
                        b'?' => {
                            if is_single && let Some(found) = self.rest(at + 1, end + 1)? {
                                return Ok(Some(found));
                            }
                            pattern = end + 1;
                        }
                        b'*' => return self.longest(at, pattern, end, 0),
                        b'+' => return self.longest(at, pattern, end, 1),
                        b'-' => return self.shortest(at, pattern, end),
                        _ if is_single => (at, pattern) = (at + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    /// Matches as many characters of a class as possible, `least` or more, and then the rest.
    fn longest(&mut self, at: usize, pattern: usize, end: usize, least: usize) -> Match {
        let mut count = 0;
        while self.is_single(at + count, pattern, end) {
            self.step()?;
            count += 1;
        }
        while count >= least {
            if let Some(found) = self.rest(at + count, end + 1)? {
                return Ok(Some(found));
            }
            if count == 0 {
                break;
            }
            count -= 1;
        }
        Ok(None)
    }

    /// Matches as few characters of a class as possible, and then the rest.
    fn shortest(&mut self, mut at: usize, pattern: usize, end: usize) -> Match {
        loop {
            if let Some(found) = self.rest(at, end + 1)? {
                return Ok(Some(found));
            }
            if !self.is_single(at, pattern, end) {
                return Ok(None);
            }
            at += 1;
        }
    }

    fn open(&mut self, at: usize, pattern: usize, capture: Capture) -> Match {
        let level = self.captures.len;
        if level == MAX_CAPTURES {
            return Err(FunctionFailure::message("too many captures"));
        }
        self.captures.list[level] = capture;
        self.captures.len = level + 1;
        let found = self.rest(at, pattern)?;
        if found.is_none() {
            self.captures.len -= 1;
        }
        Ok(found)
    }

    fn close(&mut self, at: usize, pattern: usize) -> Match {
        let mut open = self.captures.list[..self.captures.len].iter();
        let level = open.rposition(|capture| matches!(capture, Capture::Open(_)));
        let level = level.ok_or(FunctionFailure::message("invalid pattern capture"))?;
        let before = self.captures.list[level];
        if let Capture::Open(start) = before {
            self.captures.list[level] = Capture::Text(start, at);
        }
        let found = self.rest(at, pattern)?;
        if found.is_none() {
            self.captures.list[level] = before;
        }
        Ok(found)
    }

    /// Matches what a capture has matched.
    fn back_reference(&mut self, at: usize, digit: u8) -> Match {
        let index = usize::from(digit).checked_sub(usize::from(b'1'));
        let captures = &self.captures.list[..self.captures.len];
        match index.and_then(|index| captures.get(index)) {
            Some(&Capture::Text(start, end)) => {
                let is_same = self.text[at..].starts_with(&self.text[start..end]);
                Ok(is_same.then_some(at + end - start))
            }
            // The length of a position is one that no text has.
            Some(Capture::Position(_)) => Ok(None),
            _ => Err(FunctionFailure::message("invalid capture index")),
        }
    }

    /// Matches from one character to another, with as many of the first as of the second.
    fn balanced(&mut self, at: usize, pattern: usize) -> Match {
        let (first, last) = (self.symbol(pattern), self.symbol(pattern + 1));
        if first == 0 || last == 0 {
            return Err(FunctionFailure::message("unbalanced pattern"));
        }
        if self.byte(at) != first {
            return Ok(None);
        }
        let mut depth = 1;
        for place in at + 1..self.text.len() {
            self.step()?;
            let byte = self.text[place];
            if byte == last {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(place + 1));
                }
            } else if byte == first {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// Matches the place where a set begins. Returns the end of the set in the pattern.
    fn frontier(&mut self, at: usize, pattern: usize) -> Match {
        if self.symbol(pattern) != b'[' {
            let text = "missing '[' after '%f' in pattern";
            return Err(FunctionFailure::message(text));
        }
        let end = self.class_end(pattern)?;
        let previous = if at == 0 { 0 } else { self.text[at - 1] };
        let begins = !self.is_in_set(previous, pattern, end - 1)
            && self.is_in_set(self.byte(at), pattern, end - 1);
        Ok(begins.then_some(end))
    }

    /// Returns the end of the class of characters that begins at a place of the pattern.
    fn class_end(&self, pattern: usize) -> Result<usize, FunctionFailure> {
        let mut end = pattern + 1;
        match self.symbol(pattern) {
            ESCAPE if self.symbol(end) == 0 => {
                return Err(FunctionFailure::message(
                    "malformed pattern (ends with '%')",
                ));
            }
            ESCAPE => return Ok(end + 1),
            b'[' => {}
            _ => return Ok(end),
        }
        if self.symbol(end) == b'^' {
            end += 1;
        }
        loop {
            let symbol = self.symbol(end);
            if symbol == 0 {
                return Err(FunctionFailure::message("malformed pattern (missing ']')"));
            }
            end += 1;
            if symbol == ESCAPE && self.symbol(end) != 0 {
                end += 1;
            }
            if self.symbol(end) == b']' {
                return Ok(end + 1);
            }
        }
    }

    /// Returns `true` if there is a character at `at` of the class `pattern..end`.
    fn is_single(&self, at: usize, pattern: usize, end: usize) -> bool {
        let Some(&byte) = self.text.get(at) else {
            return false;
        };
        match self.symbol(pattern) {
            b'.' => true,
            ESCAPE => is_in_class(byte, self.symbol(pattern + 1)),
            b'[' => self.is_in_set(byte, pattern, end - 1),
            symbol => symbol == byte,
        }
    }

    /// Returns `true` if a byte is in the set whose `[` and `]` stand at two places.
    fn is_in_set(&self, byte: u8, start: usize, end: usize) -> bool {
        let is_negated = self.symbol(start + 1) == b'^';
        let mut at = start + 1 + usize::from(is_negated);
        while at < end {
            let symbol = self.symbol(at);
            let (found, len) = if symbol == ESCAPE {
                (is_in_class(byte, self.symbol(at + 1)), 2)
            } else if self.symbol(at + 1) == b'-' && at + 2 < end {
                ((symbol..=self.symbol(at + 2)).contains(&byte), 3)
            } else {
                (symbol == byte, 1)
            };
            if found {
                return !is_negated;
            }
            at += len;
        }
        is_negated
    }
}

/// Returns `true` if a byte is in the class of a letter, or is that character.
fn is_in_class(byte: u8, class: u8) -> bool {
    let found = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    found != class.is_ascii_uppercase()
}
