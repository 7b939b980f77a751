//! Makes Redis servers a Redis Cluster, whose nodes share the slots evenly, in their order.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ::resp::command::write_command;
use ::resp::reply::{ReplyParser, Value};

use crate::error::RunError;
use crate::even_slots::slots_of;
use crate::run_context::RunContext;

/// How long an answer may take, and how long until all nodes know each other.
const PATIENCE: Duration = Duration::from_secs(30);
/// The interval at which nodes are asked if they know each other.
const LOOK: Duration = Duration::from_millis(20);

/// Introduces the nodes to each other, and waits until all of them know all slots. `buses` are the ports
/// on which they listen for each other.
pub(super) fn join(
    nodes: &[SocketAddr],
    buses: &[u16],
    context: &RunContext<'_>,
) -> Result<(), RunError> {
    let failed = |error: RunError| RunError::failed("making a Redis Cluster")(&error);
    for (place, &node) in nodes.iter().enumerate() {
        let slots = slots_of(place, nodes.len());
        let (first, last) = (slots.start.to_string(), (slots.end - 1).to_string());
        order(node, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]).map_err(failed)?;
        // Different epochs from the start, so that nodes need not find out that they are the same.
        let epoch = (place + 1).to_string();
        order(node, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).map_err(failed)?;
    }
    for (node, bus) in nodes.iter().zip(buses).skip(1) {
        let (ip, port, bus) = (
            node.ip().to_string(),
            node.port().to_string(),
            bus.to_string(),
        );
        order(nodes[0], &["CLUSTER", "MEET", &ip, &port, &bus]).map_err(failed)?;
    }
    let deadline = Instant::now() + PATIENCE;
    for &node in nodes {
        while !knows_all(node, nodes.len()).map_err(failed)? {
            context.check_stop()?;
            if Instant::now() > deadline {
                let what = format!("{node} does not know the other nodes after {PATIENCE:?}");
                return Err(failed(RunError::Failed(what)));
            }
            std::thread::sleep(LOOK);
        }
    }
    Ok(())
}

fn knows_all(node: SocketAddr, nodes: usize) -> Result<bool, RunError> {
    let Value::Bulk(info) = ask(node, &["CLUSTER", "INFO"])? else {
        return Err(RunError::Failed("CLUSTER INFO is no text".to_owned()));
    };
    let info = String::from_utf8_lossy(&info);
    let known = format!("cluster_known_nodes:{nodes}");
    let has = |line: &str| info.lines().any(|one| one == line);
    Ok(has("cluster_state:ok") && has("cluster_slots_ok:16384") && has(&known))
}

fn order(node: SocketAddr, words: &[&str]) -> Result<(), RunError> {
    match ask(node, words)? {
        Value::Status(_) => Ok(()),
        other => Err(RunError::Failed(format!(
            "{words:?} was answered {other:?}"
        ))),
    }
}

fn ask(node: SocketAddr, words: &[&str]) -> Result<Value, RunError> {
    let exchange = || {
        let mut stream = TcpStream::connect(node)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut request = Vec::new();
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        write_command(&mut request, &words);
        stream.write_all(&request)?;
        let (mut input, mut room, mut parser) = (Vec::new(), [0; 4096], ReplyParser::new());
        loop {
            match stream.read(&mut room)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                count => input.extend_from_slice(&room[..count]),
            }
            if parser
                .parse(&input)
                .map_err(std::io::Error::other)?
                .is_some()
            {
                return Ok(input);
            }
        }
    };
    let reply: std::io::Result<Vec<u8>> = exchange();
    let reply = reply.map_err(|error| RunError::failed(&node.to_string())(&error))?;
    Value::decode(&reply).map_err(RunError::of)
}
