//! `cjson.decode`: JSON as values.
//!
//! Lists and objects are decoded in a loop, so that their nesting needs no stack of the thread.

use super::token::{Scanner, Token};
use crate::failure::FunctionFailure;
use crate::json_settings::InvalidNumbers;
use crate::lua::LuaStack;
use crate::script_context::Pace;

/// A list or an object whose table is on the stack.
enum OpenTable {
    /// So many items are decoded.
    List(i32),
    /// The key is above the table.
    Object,
}

/// `cjson.decode`
pub(crate) fn decode(stack: &mut LuaStack<'_>) -> Result<i32, FunctionFailure> {
    if stack.top() != 1 {
        return Err(FunctionFailure::Argument(1, "expected 1 argument".into()));
    }
    stack.check_string(1)?;
    let text = stack.bytes(1).unwrap_or_default().to_vec();
    if text.len() >= 2 && text[..2].contains(&0) {
        let text = "JSON parser does not support UTF-16 or UTF-32";
        return Err(FunctionFailure::message(text));
    }
    let settings = stack.context().json.get();
    let mut decoder = Decoder {
        scanner: Scanner::new(text, settings.decode_invalid == InvalidNumbers::Accepted),
        open: Vec::new(),
        first: None,
        max_depth: settings.decode_max_depth as usize,
        pace: Pace::default(),
    };
    decoder.value(stack)?;
    match decoder.scanner.next() {
        Token::End => Ok(1),
        token => Err(decoder.unexpected("the end", &token)),
    }
}

struct Decoder {
    scanner: Scanner,
    open: Vec<OpenTable>,
    /// The token with which the first item of a list begins.
    first: Option<Token>,
    max_depth: usize,
    pace: Pace,
}

impl Decoder {
    fn unexpected(&self, expected: &str, token: &Token) -> FunctionFailure {
        let (found, place) = (token.name(), self.scanner.start + 1);
        let text = format!("Expected {expected} but found {found} at character {place}");
        FunctionFailure::message(text)
    }

    /// Pushes the next value.
    fn value(&mut self, stack: &mut LuaStack<'_>) -> Result<(), FunctionFailure> {
        loop {
            self.pace.step(stack.context(), 0)?;
            let token = match self.first.take() {
                Some(token) => token,
                None => self.scanner.next(),
            };
            let mut is_whole = self.begin(stack, &token)?;
            while is_whole {
                let Some(open) = self.open.pop() else {
                    return Ok(());
                };
                is_whole = self.end_item(stack, &open)?;
            }
        }
    }

    /// Pushes the value that begins with a token. Returns `false` if it is opened, and its first
    /// value comes next.
    fn begin(&mut self, stack: &mut LuaStack<'_>, token: &Token) -> Result<bool, FunctionFailure> {
        match token {
            Token::String => stack.push_bytes(&self.scanner.string),
            Token::Number(number) => stack.push_number(*number),
            Token::Boolean(value) => stack.push_boolean(*value),
            Token::Null => stack.push_null(),
            Token::ArrayBegin => {
                self.push_table(stack)?;
                match self.scanner.next() {
                    Token::ArrayEnd => return Ok(true),
                    first => self.first = Some(first),
                }
                self.open.push(OpenTable::List(0));
                return Ok(false);
            }
            Token::ObjectBegin => {
                self.push_table(stack)?;
                return match self.scanner.next() {
                    Token::ObjectEnd => Ok(true),
                    token => self.key(stack, &token),
                };
            }
            _ => return Err(self.unexpected("value", token)),
        }
        Ok(true)
    }

    fn push_table(&mut self, stack: &mut LuaStack<'_>) -> Result<(), FunctionFailure> {
        let depth = self.open.len() + 1;
        if depth > self.max_depth || !stack.reserve(6) {
            let place = self.scanner.at;
            let text =
                format!("Found too many nested data structures ({depth}) at character {place}");
            return Err(FunctionFailure::message(text));
        }
        stack.push_table(0, 0);
        Ok(())
    }

    /// Pushes the key in a token. Returns `false`: its value comes next.
    fn key(&mut self, stack: &mut LuaStack<'_>, token: &Token) -> Result<bool, FunctionFailure> {
        if !matches!(token, Token::String) {
            return Err(self.unexpected("object key string", token));
        }
        stack.push_bytes(&self.scanner.string);
        match self.scanner.next() {
            Token::Colon => {}
            token => return Err(self.unexpected("colon", &token)),
        }
        self.open.push(OpenTable::Object);
        Ok(false)
    }

    /// Moves the value on the top into its table. Returns `true` if that is whole now.
    fn end_item(
        &mut self,
        stack: &mut LuaStack<'_>,
        open: &OpenTable,
    ) -> Result<bool, FunctionFailure> {
        match open {
            OpenTable::List(items) => {
                stack.raw_set_item(-2, items + 1);
                match self.scanner.next() {
                    Token::ArrayEnd => Ok(true),
                    Token::Comma => {
                        self.open.push(OpenTable::List(items + 1));
                        Ok(false)
                    }
                    token => Err(self.unexpected("comma or array end", &token)),
                }
            }
            OpenTable::Object => {
                stack.raw_set(-3);
                match self.scanner.next() {
                    Token::ObjectEnd => Ok(true),
                    Token::Comma => {
                        let token = self.scanner.next();
                        self.key(stack, &token)
                    }
                    token => Err(self.unexpected("comma or object end", &token)),
                }
            }
        }
    }
}
