//! Clients: tasks that ask at full speed, and one that asks on a schedule.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::client_script::ClientScript;
use crate::driver::{AsyncClient, BlockingClient, DONE};
use crate::error::RunError;
use crate::even_slots::node_of;
use crate::systems::exchange;

/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Room for a reply, right or wrong.
const ROOM: usize = 512;

/// A task: one connection to each target, one query under way.
pub(super) struct QueryTask {
    script: ClientScript,
    links: Vec<tokio::net::TcpStream>,
    input: Vec<u8>,
}

impl QueryTask {
    pub(super) async fn connect(
        script: ClientScript,
        targets: &[SocketAddr],
    ) -> Result<QueryTask, RunError> {
        let mut links = Vec::new();
        for target in targets {
            let link = tokio::net::TcpStream::connect(target).await;
            let link = link.and_then(|link| link.set_nodelay(true).map(|()| link));
            links.push(link.map_err(|error| format!("{target}: {error}"))?);
        }
        Ok(QueryTask {
            script,
            links,
            input: Vec::with_capacity(ROOM),
        })
    }

    pub(super) fn into_script(self) -> ClientScript {
        self.script
    }
}

impl AsyncClient for QueryTask {
    async fn call(&mut self) -> Result<(), RunError> {
        let node = self.script.turn();
        let place = node.min(self.links.len() - 1);
        let link = &mut self.links[place];
        let sent = link.write_all(self.script.request()).await;
        sent.map_err(RunError::of)?;
        self.input.clear();
        loop {
            let read = link.read_buf(&mut self.input).await;
            if read.map_err(RunError::of)? == 0 {
                return Err(RunError::Failed("a connection was closed".to_owned()));
            }
            if self.script.is_whole(&self.input)? {
                return Ok(());
            }
        }
    }
}

/// All clients on one thread: each query goes over the connections of the next one.
pub(super) struct ScheduledClients {
    clients: Vec<(ClientScript, Vec<std::net::TcpStream>)>,
    turn: usize,
}

impl ScheduledClients {
    pub(super) fn connect(
        scripts: impl Iterator<Item = ClientScript>,
        targets: &[SocketAddr],
    ) -> Result<ScheduledClients, RunError> {
        let client = |script| Ok((script, connect(targets)?));
        Ok(ScheduledClients {
            clients: scripts.map(client).collect::<Result<_, RunError>>()?,
            turn: 0,
        })
    }

    pub(super) fn into_scripts(self) -> Vec<ClientScript> {
        self.clients.into_iter().map(|(script, _)| script).collect()
    }
}

impl BlockingClient for ScheduledClients {
    fn run(&mut self) -> Result<u64, RunError> {
        self.turn = (self.turn + 1) % self.clients.len();
        let (script, links) = &mut self.clients[self.turn];
        let node = script.turn();
        let place = node.min(links.len() - 1);
        let whole = |reply: &[u8]| script.is_whole(reply);
        exchange(&mut links[place], script.request(), whole)?;
        Ok(DONE)
    }

    fn settle(&mut self, _: u64) -> Result<(), RunError> {
        Ok(())
    }
}

fn connect(targets: &[SocketAddr]) -> Result<Vec<std::net::TcpStream>, RunError> {
    let connect = |target: &SocketAddr| {
        let link = std::net::TcpStream::connect(target)?;
        link.set_nodelay(true)?;
        link.set_read_timeout(Some(PATIENCE))?;
        Ok(link)
    };
    let links = targets.iter().map(connect);
    let links = links.collect::<std::io::Result<_>>();
    links.map_err(RunError::of)
}

/// Checks that every key holds its last write, by reading it from the nodes directly.
pub(super) fn read_back(nodes: &[SocketAddr], scripts: &[ClientScript]) -> Result<(), RunError> {
    let mut links = connect(nodes)?;
    for (key, value) in scripts.iter().flat_map(ClientScript::last_writes) {
        let mut request = Vec::new();
        ::resp::command::write_command(&mut request, &[b"GET", &key]);
        let expected = [b"$5\r\n", &value[..], b"\r\n"].concat();
        let whole = |reply: &[u8]| match expected.starts_with(reply) {
            true => Ok(reply.len() == expected.len()),
            false => Err(RunError::Failed(format!(
                "key {} holds {} instead of {}",
                key.escape_ascii(),
                reply.escape_ascii(),
                value.escape_ascii()
            ))),
        };
        exchange(&mut links[node_of(&key, nodes.len())], &request, whole)?;
    }
    Ok(())
}
