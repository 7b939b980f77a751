//! The messages between a reader and a storage node, on a link of the fabric. Numbers
//! are little-endian; a text goes to the message's end and is UTF-8.
//!
//! Messages of a reader; the first byte is the kind:
//!
//! | byte | name | then |
//! |---|---|---|
//! | 1 | *window* | `window` u16; a grant for memory in which pages are to lie |
//! | 2 | *ask* | `request` u32; `question` u8; its body, see [`Question`] |
//! | 3 | *close* | `handle` u32: an opened table is not needed any more |
//! | 4 | *read* | `handle` u32; then 16 bytes for each page: `tag` u32, `segment` u16, `window` u16, `page` u32, `slot` u32 |
//! | 5 | *run* | `request` u32; `handle` u32; `credit` u32; a task, which means something to the node's worker alone |
//! | 6 | *more* | `request` u32; `credit` u32: so many batches more may be sent |
//! | 7 | *cancel* | `request` u32 |
//! | 8 | *load* | `request` u32; what is to be loaded, see [`load`](super::load). It is the load's number, too |
//! | 9 | *part* | `request` u32; `load` u32; a [block](crate::block) of rows |
//! | 10 | *commit* | `request` u32; `load` u32 |
//! | 11 | *prepare* | `request` u32; `load` u32: its rows are to be durable, and no part of the table yet |
//!
//! A segment is named by its place in the table's version. A page goes to the window's bytes from
//! `slot` × 512 on; with `window` = 65535 it comes in a message.
//!
//! Messages of a node:
//!
//! | byte | name | then |
//! |---|---|---|
//! | 1 | *window* | `window` u16; u8: 1 and the answer to the grant, or 0 and a text that says why not |
//! | 2 | *told* | `request` u32; the answer to a question |
//! | 3 | *failed* | `request` u32; `kind` u8, see [`Kind`]; a text: why a question has no answer, or a task no end |
//! | 4 | *there* | `tag` u32 of each page that lies in its window now |
//! | 5 | *page* | `tag` u32; the page |
//! | 6 | *unread* | `tag` u32; a text: why a page cannot be had |
//! | 7 | *batch* | `request` u32; a batch of a task's results |
//! | 8 | *finished* | `request` u32: that was all |
//! | 9 | *working* | `request` u32 of each question, step of a load and task that is not over: it is waited for with reason |
//!
//! *Working* comes every few seconds while anything is under way, so that a waiting reader can tell a long
//! sync or a long task from a lost node. A batch that exceeds the length of a message fails its
//! task, and any other such answer its request: nothing is left out silently.
//!
//! Replies come in any order. A reader's numbers, `tag` and `request`, are its own; those that are
//! in use at a time differ. An invalid message ends the link.

mod reply;
mod say;

use base::codec::{Malformed, MalformedKind, Reader};

pub(crate) use reply::{Kind, Reply, begin_there};
pub(crate) use say::{Pages, Question, Say, WANTED, Wanted, begin_read};

/// Stands for no window: pages come in messages.
pub(crate) const INLINE: u16 = u16::MAX;
/// The unit of bytes in which slots are counted.
pub(crate) const SLOT_UNIT: usize = 512;

fn words<const N: usize>(out: &mut Vec<u8>, first: u8, words: [u32; N]) {
    out.push(first);
    for word in words {
        out.extend(word.to_le_bytes());
    }
}

/// Returns the rest, as numbers of four bytes.
fn numbers<'a>(reader: &mut Reader<'a>) -> Result<&'a [[u8; 4]], Malformed> {
    let (numbers, rest) = reader.rest().as_chunks();
    match rest.is_empty() {
        true => Ok(numbers),
        false => Err(reader.malformed(MalformedKind::Cut)),
    }
}

/// Returns the rest, as a text.
fn text<'a>(reader: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    let malformed = reader.malformed(MalformedKind::NotText);
    std::str::from_utf8(reader.rest()).map_err(|_| malformed)
}

#[cfg(test)]
pub(crate) mod tests;
