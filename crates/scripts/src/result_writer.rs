//! The result of a script as a reply.
//!
//! Tables may be nested as deep as Lua's stack allows, and the reply is written in a loop, so that
//! the thread's stack does not matter. Metamethods are not called.

use resp::{Protocol, Writer};

use crate::lua::{Kind, LuaStack};
use crate::number::{truncate, write_general};

/// The most slots of Lua's stack that a result may take: one for a list, three for a map or a set.
const MAX_SLOTS: i32 = 7980;
/// The most bytes of a result, as of a value: a table may have one long string many times.
const MAX_BYTES: usize = 512 << 20;

/// Writes the value on the top as a reply, and drops it. `booleans` says whether the script uses
/// RESP3, where `false` is not the absence of a value.
pub(crate) fn write_result(
    stack: &mut LuaStack<'_>,
    out: &mut Vec<u8>,
    protocol: Protocol,
    booleans: bool,
) {
    let start = out.len();
    let mut writer = ResultWriter {
        out,
        protocol,
        booleans,
        open: Vec::new(),
        bottom: stack.top(),
    };
    writer.write(stack);
    while let Some(open) = writer.open.pop() {
        if writer.out.len() - start > MAX_BYTES {
            writer.out.truncate(start);
            writer
                .writer()
                .error("ERR the result of the script is longer than 512mb");
            return stack.set_top(writer.bottom - 1);
        }
        writer.proceed(stack, open);
    }
}

/// A collection whose head is written. Its table is at the index `table`.
#[derive(Clone, Copy)]
enum OpenCollection {
    /// The items from `next` to `len` are missing.
    List { table: i32, next: i32, len: i32 },
    /// The pairs behind the key above the table are missing.
    Pairs { table: i32 },
    /// As above, and the value above the key.
    PairsFromValue { table: i32 },
    /// The elements behind the key above the table are missing.
    Elements { table: i32 },
}

struct ResultWriter<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
    booleans: bool,
    open: Vec<OpenCollection>,
    bottom: i32,
}

impl ResultWriter<'_> {
    fn writer(&mut self) -> Writer<'_> {
        Writer::new(self.out, self.protocol)
    }

    /// Writes the next part of a collection.
    fn proceed(&mut self, stack: &mut LuaStack<'_>, open: OpenCollection) {
        match open {
            OpenCollection::List { table, next, len } => {
                if next > len {
                    return stack.set_top(table - 1);
                }
                let next = next + 1;
                self.open.push(OpenCollection::List { table, next, len });
                stack.raw_get_item(table, next - 1);
                self.write(stack);
            }
            OpenCollection::Pairs { table } => {
                if !stack.next(table) {
                    return stack.set_top(table - 1);
                }
                self.open.push(OpenCollection::PairsFromValue { table });
                stack.push_value(table + 1);
                self.write(stack);
            }
            OpenCollection::PairsFromValue { table } => {
                self.open.push(OpenCollection::Pairs { table });
                self.write(stack);
            }
            OpenCollection::Elements { table } => {
                if !stack.next(table) {
                    return stack.set_top(table - 1);
                }
                self.open.push(OpenCollection::Elements { table });
                stack.pop(1);
                stack.push_value(table + 1);
                self.write(stack);
            }
        }
    }

    /// Writes the value on the top, and drops it unless it is a collection, which is opened.
    fn write(&mut self, stack: &mut LuaStack<'_>) {
        if stack.top() - self.bottom >= MAX_SLOTS {
            self.writer().error("ERR reached lua stack limit");
            return stack.pop(1);
        }
        match stack.kind(-1) {
            Kind::String => self.writer().bulk(stack.bytes(-1).unwrap_or_default()),
            Kind::Number => {
                let number = stack.number(-1).unwrap_or_default();
                self.writer().int(truncate(number));
            }
            Kind::Boolean if self.booleans => self.writer().boolean(stack.boolean(-1)),
            Kind::Boolean if stack.boolean(-1) => self.writer().int(1),
            Kind::Table => return self.write_table(stack),
            _ => self.writer().null(),
        }
        stack.pop(1);
    }

    fn write_table(&mut self, stack: &mut LuaStack<'_>) {
        if let Some(text) = field(stack, "err") {
            self.writer().error_bytes(&text);
            stack.pop(1);
        } else if let Some(text) = field(stack, "ok") {
            self.out.push(b'+');
            self.out.extend(one_line(&text));
            self.out.extend_from_slice(b"\r\n");
            stack.pop(1);
        } else if stack.raw_get_field(-1, "double") == Kind::Number {
            let mut text = Vec::new();
            write_general(&mut text, stack.number(-1).unwrap_or_default(), 17);
            self.write_marked(b',', &text);
            stack.pop(2);
        } else {
            stack.pop(1);
            self.write_collection(stack);
        }
    }

    fn write_collection(&mut self, stack: &mut LuaStack<'_>) {
        let table = stack.top();
        for name in ["map", "set"] {
            if stack.raw_get_field(table, name) == Kind::Table {
                stack.replace(table);
                let len = count_fields(stack, table);
                stack.push_nil();
                if name == "map" {
                    self.writer().map(len);
                    self.open.push(OpenCollection::Pairs { table });
                } else {
                    self.writer().set(len);
                    self.open.push(OpenCollection::Elements { table });
                }
                return;
            }
            stack.pop(1);
        }
        if let Some(digits) = field(stack, "big_number") {
            let digits: Vec<u8> = one_line(&digits).collect();
            self.write_marked(b'(', &digits);
            return stack.pop(1);
        }
        if self.write_verbatim(stack) {
            return stack.pop(1);
        }
        let mut len = 0;
        while stack.raw_get_item(table, len + 1) != Kind::Nil {
            stack.pop(1);
            len += 1;
        }
        stack.pop(1);
        self.writer().array(len as usize);
        let next = 1;
        self.open.push(OpenCollection::List { table, next, len });
    }

    /// Writes the table on the top if it is a text with a format. Returns `false` if it is not.
    fn write_verbatim(&mut self, stack: &mut LuaStack<'_>) -> bool {
        let is_table = stack.raw_get_field(-1, "verbatim_string") == Kind::Table;
        let text = is_table.then(|| field(stack, "string")).flatten();
        let format = is_table.then(|| field(stack, "format")).flatten();
        stack.pop(1);
        let (Some(text), Some(format)) = (text, format) else {
            return false;
        };
        let mut letters = [b' '; 3];
        for (letter, byte) in letters.iter_mut().zip(format) {
            *letter = byte;
        }
        self.writer().verbatim(&letters, &text);
        true
    }

    /// Writes a line of a type of RESP3, which is a byte string in RESP2.
    fn write_marked(&mut self, mark: u8, text: &[u8]) {
        if self.protocol == Protocol::Resp2 {
            return self.writer().bulk(text);
        }
        self.out.push(mark);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Returns the bytes of a field of the table on the top, if it is a string.
fn field(stack: &mut LuaStack<'_>, name: &str) -> Option<Vec<u8>> {
    let found = stack.raw_get_field(-1, name) == Kind::String;
    let bytes = found.then(|| stack.bytes(-1).map(<[u8]>::to_vec)).flatten();
    stack.pop(1);
    bytes
}

fn count_fields(stack: &mut LuaStack<'_>, table: i32) -> usize {
    let mut count = 0;
    stack.push_nil();
    while stack.next(table) {
        stack.pop(1);
        count += 1;
    }
    count
}

/// Returns a text with blanks in the place of line ends.
fn one_line(text: &[u8]) -> impl Iterator<Item = u8> {
    text.iter().map(|&byte| match byte {
        b'\r' | b'\n' => b' ',
        _ => byte,
    })
}
