//! Messages of each kind, encoded and decoded.

use super::*;

/// Returns one message of each kind.
pub(crate) fn requests() -> Vec<NodeRequest<'static>> {
    static PAGE_REQUEST: [[u8; 16]; 2] = [[7; 16], [9; 16]];
    let ask = |query| NodeRequest::Query { request: 9, query };
    vec![
        NodeRequest::Window {
            window: 3,
            grant: b"grant",
        },
        ask(NodeQuery::Tables),
        ask(NodeQuery::Open(7, "lineitem")),
        ask(NodeQuery::File(512, "disk")),
        ask(NodeQuery::Status),
        ask(NodeQuery::Remove("lineitem")),
        NodeRequest::Load {
            request: 1,
            definition: b"table",
        },
        NodeRequest::LoadBlock {
            request: 2,
            load: 1,
            block: b"rows",
        },
        NodeRequest::Commit {
            request: 3,
            load: 1,
        },
        NodeRequest::Close { handle: 4 },
        NodeRequest::Read {
            handle: 5,
            pages: PageRequests(&PAGE_REQUEST),
        },
        NodeRequest::Run {
            request: 1,
            handle: 2,
            credit: 3,
            task: b"task",
        },
        NodeRequest::Credit {
            request: 1,
            credit: 2,
        },
        NodeRequest::Cancel { request: u32::MAX },
        NodeRequest::Prepare {
            request: 4,
            load: 1,
        },
    ]
}

/// Returns one reply of each kind.
pub(crate) fn replies() -> Vec<NodeReply<'static>> {
    static TAGS: [[u8; 4]; 2] = [[1, 0, 0, 0], [2, 0, 0, 0]];
    let failed = |kind| NodeReply::Failed {
        request: 2,
        kind,
        text: "why",
    };
    vec![
        NodeReply::Window {
            window: 1,
            answer: Ok(b"yes"),
        },
        NodeReply::Window {
            window: 1,
            answer: Err("no"),
        },
        NodeReply::Answer {
            request: 1,
            answer: b"so",
        },
        failed(NodeFailureKind::Refused),
        failed(NodeFailureKind::Page),
        failed(NodeFailureKind::Value),
        failed(NodeFailureKind::Busy),
        NodeReply::Written { tags: &TAGS },
        NodeReply::Page {
            tag: 1,
            bytes: b"page",
        },
        NodeReply::PageFailed {
            tag: 1,
            text: "gone",
        },
        NodeReply::Batch {
            request: 1,
            bytes: b"batch",
        },
        NodeReply::Finished { request: 7 },
        NodeReply::Working { requests: &TAGS },
        failed(NodeFailureKind::ResultsNotTaken),
        failed(NodeFailureKind::Doubtful),
    ]
}

#[test]
fn what_is_said_is_heard() {
    for requests in requests() {
        let mut bytes = Vec::new();
        requests.encode(&mut bytes);
        assert_eq!(NodeRequest::decode(&bytes), Ok(requests));
    }
    for reply in replies() {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        assert_eq!(NodeReply::decode(&bytes), Ok(reply));
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
        assert!(NodeRequest::decode(bytes).is_err(), "{bytes:?}");
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
        assert!(NodeReply::decode(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn a_page_s_entry_is_read_as_it_was_written() {
    let wanted = PageRequest {
        tag: 0x0102_0304,
        segment: 0x0506,
        window: 0x0708,
        page: 0x090a_0b0c,
        slot: 0x0d0e_0f10,
    };
    let mut bytes = Vec::new();
    begin_read(&mut bytes, 3);
    bytes.extend(wanted.encode());
    let Ok(NodeRequest::Read { handle, pages }) = NodeRequest::decode(&bytes) else {
        panic!("no read");
    };
    assert_eq!(handle, 3);
    assert_eq!(pages.iter().collect::<Vec<_>>(), [wanted]);
}
