//! Clients with requests that nodes cannot read, or may not be able to read.

use super::*;

#[test]
fn a_client_whose_request_no_node_can_read_leaves_the_others_alone() {
    let mut stage = Stage::begun(Version::V5);
    let plain = || plain_query("SELECT * FROM t", Version::V5);
    stage.send(1, plain());
    let first = stage.order();
    let shared = first.connection_key;
    let error = ErrorBody::plain(PROTOCOL_ERROR, "Invalid value for the paging state");
    stage.answer(first, Response::Error(error));
    assert_eq!(stage.error(), (StreamId(1), PROTOCOL_ERROR));
    stage.send(2, plain());
    let second = stage.order();
    assert_ne!(second.connection_key, shared);
    stage.answer(second, Response::Result(ResultBody::Void));
    assert_eq!(stage.told().len(), 1);
    // A timestamp that nodes cannot read reaches no node.
    let none = cql::BoundValues::none(Version::V5);
    let mut parameters = Parameters::new(Consistency::One, none);
    parameters.timestamp = Some(i64::MIN);
    let text = "UPDATE t SET v = 1 WHERE k = 1";
    let query = cql::request::Query { text, parameters };
    assert_eq!(stage.send(3, Request::Query(query)), InputProgress::Done);
    assert_eq!(stage.error(), (StreamId(3), PROTOCOL_ERROR));
    let batch = cql::request::Batch {
        kind: cql::request::BatchKind::Logged,
        statements: Vec::new(),
        parameters,
    };
    assert_eq!(stage.send(4, Request::Batch(batch)), InputProgress::Done);
    assert_eq!(stage.error(), (StreamId(4), PROTOCOL_ERROR));
    assert!(stage.orders.is_empty());
}

#[test]
fn a_paging_state_that_nodes_may_not_read_is_kept_from_the_others() {
    for (state, is_kept) in [
        (&b"\0\x03row\x05\x05"[..], false),
        (b"", true),
        (b"anything", true),
    ] {
        let of = |stage: &mut Stage, number: usize| {
            let mut parameters =
                Parameters::new(Consistency::One, cql::BoundValues::none(Version::V5));
            parameters.paging_state = Some(state);
            let text = "SELECT * FROM t";
            stage.send(
                7,
                match number {
                    0 => Request::Query(cql::request::Query { text, parameters }),
                    1 => Request::Execute(Execute {
                        id: b"an id",
                        result_metadata_id: Some(b"columns"),
                        parameters,
                    }),
                    _ => Request::Batch(cql::request::Batch {
                        kind: cql::request::BatchKind::Logged,
                        statements: Vec::new(),
                        parameters,
                    }),
                },
            );
            stage.order().connection_key
        };
        for number in 0..3 {
            let mut stage = Stage::begun(Version::V5);
            stage.send(6, plain_query("SELECT * FROM t", Version::V5));
            let shared = stage.order().connection_key;
            let connection_key = of(&mut stage, number);
            assert_eq!(
                connection_key != shared,
                is_kept,
                "{state:?} in request {number}"
            );
            // The nodes judge it, not the proxy.
            assert_eq!(stage.told(), []);
        }
    }
}

#[test]
fn a_connection_that_suspects_have_lost_says_nothing_of_its_node() {
    for is_quarantined in [true, false] {
        let mut stage = Stage::begun(Version::V5);
        if is_quarantined {
            stage.client.quarantine();
        }
        stage.send(1, plain_query("SELECT * FROM t", Version::V5));
        let query = stage.order();
        let node = query.node;
        let why = NodeError::Closed("the peer closed it".to_owned());
        stage.give(query, Err(QueryFailure::Lost(why)));
        let avoids = stage.protocol.suspects.avoids(node, stage.now);
        assert_eq!(avoids, !is_quarantined);
        // It is a read, and is repeated.
        assert_eq!(stage.orders.len(), 1);
    }
}
