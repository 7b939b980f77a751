//! Messages of each kind, encoded and decoded.

use super::*;

/// Returns one message of each kind.
pub(crate) fn said() -> Vec<Say<'static>> {
    static WANTED: [[u8; 16]; 2] = [[7; 16], [9; 16]];
    let ask = |question| Say::Ask {
        request: 9,
        question,
    };
    vec![
        Say::Window {
            window: 3,
            grant: b"grant",
        },
        ask(Question::Tables),
        ask(Question::Open(7, "lineitem")),
        ask(Question::File(512, "disk")),
        ask(Question::Condition),
        ask(Question::Remove("lineitem")),
        Say::Load {
            request: 1,
            definition: b"table",
        },
        Say::Part {
            request: 2,
            load: 1,
            block: b"rows",
        },
        Say::Commit {
            request: 3,
            load: 1,
        },
        Say::Close { handle: 4 },
        Say::Read {
            handle: 5,
            pages: Pages(&WANTED),
        },
        Say::Run {
            request: 1,
            handle: 2,
            credit: 3,
            task: b"task",
        },
        Say::More {
            request: 1,
            credit: 2,
        },
        Say::Cancel { request: u32::MAX },
        Say::Prepare {
            request: 4,
            load: 1,
        },
    ]
}

/// Returns one reply of each kind.
pub(crate) fn replies() -> Vec<Reply<'static>> {
    static TAGS: [[u8; 4]; 2] = [[1, 0, 0, 0], [2, 0, 0, 0]];
    let failed = |kind| Reply::Failed {
        request: 2,
        kind,
        text: "why",
    };
    vec![
        Reply::Window {
            window: 1,
            answer: Ok(b"yes"),
        },
        Reply::Window {
            window: 1,
            answer: Err("no"),
        },
        Reply::Told {
            request: 1,
            answer: b"so",
        },
        failed(Kind::Refused),
        failed(Kind::Page),
        failed(Kind::Value),
        failed(Kind::Busy),
        Reply::There { tags: &TAGS },
        Reply::Page {
            tag: 1,
            bytes: b"page",
        },
        Reply::Unread {
            tag: 1,
            text: "gone",
        },
        Reply::Batch {
            request: 1,
            bytes: b"batch",
        },
        Reply::Finished { request: 7 },
        Reply::Working { requests: &TAGS },
        failed(Kind::Untaken),
        failed(Kind::Doubtful),
    ]
}

#[test]
fn what_is_said_is_heard() {
    for said in said() {
        let mut bytes = Vec::new();
        said.encode(&mut bytes);
        assert_eq!(Say::decode(&bytes), Ok(said));
    }
    for reply in replies() {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        assert_eq!(Reply::decode(&bytes), Ok(reply));
    }
}

#[test]
fn what_makes_no_sense_is_no_message() {
    for bytes in [
        &b""[..],
        &[0],
        &[12],
        &[2, 0, 0, 0, 0, 5],
        &[2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0xff],
        &[3, 0, 0, 0],
        &[3, 0, 0, 0, 0, 0],
        &[4, 0, 0, 0, 0, 1, 2, 3],
    ] {
        assert!(Say::decode(bytes).is_err(), "{bytes:?}");
    }
    for bytes in [
        &b""[..],
        &[0],
        &[10],
        &[9, 1],
        &[1, 0, 0, 2],
        &[3, 0, 0, 0, 0, 6],
        &[4, 1],
        &[6, 0, 0, 0, 0, 0xff],
        &[8, 0, 0, 0],
    ] {
        assert!(Reply::decode(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn a_page_s_entry_is_read_as_it_was_written() {
    let wanted = Wanted {
        tag: 0x0102_0304,
        segment: 0x0506,
        window: 0x0708,
        page: 0x090a_0b0c,
        slot: 0x0d0e_0f10,
    };
    let mut bytes = Vec::new();
    begin_read(&mut bytes, 3);
    bytes.extend(wanted.encode());
    let Ok(Say::Read { handle, pages }) = Say::decode(&bytes) else {
        panic!("no read");
    };
    assert_eq!(handle, 3);
    assert_eq!(pages.iter().collect::<Vec<_>>(), [wanted]);
}
