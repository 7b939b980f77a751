//! The corpus of messages, and mutations of it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::{DataType, Field, Schema};

use super::fuzz_messages;
use crate::protocol::{self, ListedTable, LoadDefinition, NodeStatus, TableSummary};
use crate::row::Form;
use crate::segment::Groups;
use crate::table::{Layout, SegmentId, TableId, Version};
use crate::tables::{Identity, LoadOptions, Mode};
use crate::task::WorkTimes;

/// Returns one message of each kind, and the forms of its parts.
fn messages() -> Vec<(String, Vec<u8>)> {
    let mut inputs = Vec::new();
    for (number, requests) in protocol::tests::requests().into_iter().enumerate() {
        let mut bytes = Vec::new();
        requests.encode(&mut bytes);
        inputs.push((format!("said{number:02}"), bytes));
    }
    for (number, reply) in protocol::tests::replies().into_iter().enumerate() {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        inputs.push((format!("reply{number:02}"), bytes));
    }
    let definition = LoadDefinition {
        name: "numbers".to_owned(),
        schema: Arc::new(Schema::new(vec![
            Field::new("n", DataType::Int64, false),
            Field::new("text", DataType::Utf8, true),
        ])),
        options: LoadOptions {
            text_widths: HashMap::from([("text".to_owned(), 20)]),
            forms: Some(vec![Form::I64, Form::Chars(20)]),
            layout: Layout::Rows,
            groups: Groups::Together,
            ..LoadOptions::default()
        },
        mode: Mode::Append,
        identity: None,
    };
    let named = LoadDefinition {
        identity: Some(Identity {
            table: TableId(5),
            version: Version(6),
            segment: SegmentId(7),
        }),
        ..definition.clone()
    };
    inputs.push(("named".to_owned(), named.encode().unwrap()));
    inputs.push((
        "definition".to_owned(),
        definition.encode_as(TableId(5)).unwrap(),
    ));
    let newest = TableSummary {
        id: TableId(5),
        version: Version(6),
        rows: 1000,
        pages: 300,
        page_size: 4096,
    };
    let listed = |name: &str, found| ListedTable {
        name: name.to_owned(),
        found,
    };
    let list = [
        listed("numbers", Ok(newest)),
        listed("texts", Err("a file of it is gone".into())),
    ];
    inputs.push(("listed".to_owned(), ListedTable::encode(&list)));
    let condition = NodeStatus {
        waiting: 1,
        read: Duration::from_micros(80),
        tasks: 2,
        task_threads: 3,
        readers: 4,
        work: WorkTimes {
            operation_ps: 5,
            page_ps: 6,
            wait_ps: 7,
        },
    };
    inputs.push(("condition".to_owned(), condition.encode()));
    inputs
}

#[test]
fn messages_keep_the_promises() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/messages");
    let mut rng = fastrand::Rng::with_seed(12);
    for (name, bytes) in messages() {
        fuzz_messages(&bytes);
        for _ in 0..500 {
            let mut wrong = bytes.clone();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..wrong.len());
                wrong[at] = [0, 1, 255, rng.u8(..)][rng.usize(..4)];
            }
            wrong.truncate(rng.usize(1..=2 * wrong.len()));
            fuzz_messages(&wrong);
        }
        let path = corpus.join(&name);
        let there = std::fs::read(&path).unwrap_or_default();
        assert!(there == bytes, "{} is out of date", path.display());
    }
}
