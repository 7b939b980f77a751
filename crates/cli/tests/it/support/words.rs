//! Commands and replies as text, and the contents of replies about locks.

use testkit::{Client, Frame};

/// Returns the bytes of a reply as text.
pub(crate) fn text(frame: &Frame) -> String {
    String::from_utf8_lossy(&frame.raw).into_owned()
}

/// Returns the reply to a command, whose words are separated by blanks.
pub(crate) fn ask(client: &mut Client, command: &str) -> Frame {
    client.frame(&command.split(' ').collect::<Vec<_>>())
}

/// As [`ask`], returns the bytes of the reply as text.
pub(crate) fn told(client: &mut Client, command: &str) -> String {
    text(&ask(client, command))
}

/// Returns the token of a lock, if it was granted.
pub(crate) fn token(frame: &Frame) -> Option<i64> {
    let fields = frame.frames()?;
    fields[1].int().filter(|_| fields[0].int() == Some(1))
}

/// As [`token`], of a lock that was granted.
#[track_caller]
pub(crate) fn granted(frame: &Frame) -> i64 {
    token(frame).unwrap_or_else(|| panic!("not granted: {frame:?}"))
}
