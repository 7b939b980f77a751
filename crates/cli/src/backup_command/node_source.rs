//! A running node as a source of backups, by the commands of `KUMIKI.BACKUP`.

use std::net::SocketAddr;
use std::time::Duration;

use backup::{NodeDescription, NodeSource};
use base::Epoch;
use resp::Value;
use store::{DataFiles, HeldMoment};

use crate::node_connection::{Credentials, NodeConnection};

/// How long a node may take for one reply. A log may be slow.
const PATIENCE: Duration = Duration::from_secs(60);
const COMMAND: &str = "KUMIKI.BACKUP";

/// A node.
pub(super) struct ConnectedNode {
    connection: NodeConnection,
    address: SocketAddr,
}

/// A partition of the cluster of a node.
pub(super) struct PartitionPlace {
    pub(super) partition: u16,
    pub(super) node: u16,
    pub(super) address: SocketAddr,
    slots: String,
    pub(super) is_replicated: bool,
}

/// What a node says about its data and its cluster.
pub(super) struct DataInfo {
    data: String,
    cluster: Option<String>,
    pub(super) node: u16,
    pub(super) partitions: Vec<PartitionPlace>,
}

impl ConnectedNode {
    /// Connects to the first of these addresses that accepts.
    ///
    /// # Errors
    /// The text says why it could not connect.
    pub(super) fn connect(
        addresses: &[SocketAddr],
        credentials: &Credentials,
    ) -> Result<ConnectedNode, String> {
        let (address, connection) = NodeConnection::connect_first(addresses, credentials)?;
        Ok(ConnectedNode {
            connection,
            address,
        })
    }

    /// Returns the text of an error with the node's address.
    fn named(&self, error: impl std::fmt::Display) -> String {
        format!("{}: {error}", self.address)
    }

    fn send(&mut self, args: &[&str]) -> Result<(), String> {
        let args: Vec<&[u8]> = [COMMAND]
            .iter()
            .chain(args)
            .map(|arg| arg.as_bytes())
            .collect();
        self.connection
            .send(&args)
            .map_err(|error| self.named(error))
    }

    fn reply(&mut self) -> Result<Value, String> {
        let reply = self.connection.reply(PATIENCE);
        reply.map_err(|error| {
            let is_unknown = error.starts_with("unknown command");
            self.named(match is_unknown {
                true => "it is no node of this release: it does not know KUMIKI.BACKUP".to_owned(),
                false => error,
            })
        })
    }

    fn ask(&mut self, args: &[&str]) -> Result<Value, String> {
        self.send(args)?;
        self.reply()
    }

    fn unexpected(&self, value: &Value) -> String {
        let text: String = format!("{value:?}").chars().take(100).collect();
        self.named(format_args!("its answer is malformed: {text}"))
    }

    fn text(&mut self, args: &[&str]) -> Result<String, String> {
        match self.ask(args)? {
            Value::Bulk(text) | Value::Verbatim { text, .. } => {
                Ok(String::from_utf8_lossy(&text).into_owned())
            }
            other => Err(self.unexpected(&other)),
        }
    }

    fn done(&mut self, args: &[&str]) -> Result<(), String> {
        match self.ask(args)? {
            Value::Status(_) => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Asks the node about its data and its cluster.
    ///
    /// # Errors
    /// The text names the node.
    pub(super) fn info(&mut self) -> Result<DataInfo, String> {
        let text = self.text(&["INFO"])?;
        DataInfo::parse(&text)
            .ok_or_else(|| self.named("its answer to KUMIKI.BACKUP INFO is malformed"))
    }
}

impl DataInfo {
    fn parse(text: &str) -> Option<DataInfo> {
        let mut info = DataInfo {
            data: String::new(),
            cluster: None,
            node: 0,
            partitions: Vec::new(),
        };
        for line in text.lines() {
            let (name, rest) = line.split_once(' ')?;
            match name {
                "data" => rest.clone_into(&mut info.data),
                "cluster" => info.cluster = Some(rest.to_owned()),
                "node" => info.node = rest.parse().ok()?,
                "partition" => {
                    let words: Vec<&str> = rest.split(' ').collect();
                    let [partition, node, address, slots] = *words else {
                        return None;
                    };
                    info.partitions.push(PartitionPlace {
                        partition: partition.parse().ok()?,
                        node: node.parse().ok()?,
                        address: address.parse().ok()?,
                        slots: slots.to_owned(),
                        is_replicated: false,
                    });
                }
                "replicated" => {
                    let partition: u16 = rest.parse().ok()?;
                    let mut partitions = info.partitions.iter_mut();
                    let place = partitions.find(|place| place.partition == partition)?;
                    place.is_replicated = true;
                }
                // A later release may say more.
                _ => {}
            }
        }
        (!info.data.is_empty()).then_some(info)
    }
}

impl NodeSource for ConnectedNode {
    fn describe(&mut self) -> Result<NodeDescription, String> {
        let info = self.info()?;
        let own = info.partitions.iter().find(|place| place.node == info.node);
        Ok(NodeDescription {
            node: info.node,
            partition: own.map_or(0, |place| place.partition),
            slots: own.map_or_else(|| "-".to_owned(), |place| place.slots.clone()),
            cluster: info.cluster,
            data: info.data,
            address: self.address.to_string(),
        })
    }

    fn pin(&mut self, name: &str, time: Duration) -> Result<(), String> {
        self.done(&["PIN", name, &time.as_secs().to_string()])
    }

    fn files(&mut self, name: &str) -> Result<DataFiles, String> {
        let text = self.text(&["FILES", name])?;
        text.parse().map_err(|error| self.named(error))
    }

    fn read(
        &mut self,
        name: &str,
        file: &str,
        offset: u64,
        count: usize,
    ) -> Result<Vec<u8>, String> {
        let (offset, count) = (offset.to_string(), count.to_string());
        match self.ask(&["READ", name, file, &offset, &count])? {
            Value::Bulk(bytes) => Ok(bytes),
            other => Err(self.unexpected(&other)),
        }
    }

    fn narrow(&mut self, name: &str, segments: &[u32]) -> Result<(), String> {
        let segments: Vec<String> = segments.iter().map(u32::to_string).collect();
        let segments = segments.iter().map(String::as_str);
        let args: Vec<&str> = ["NARROW", name].into_iter().chain(segments).collect();
        self.done(&args)
    }

    fn unpin(&mut self, name: &str) -> Result<(), String> {
        self.done(&["UNPIN", name])
    }

    fn ask_hold(&mut self, time: Duration) -> Result<(), String> {
        self.send(&["HOLD", &time.as_millis().to_string()])
    }

    fn held(&mut self) -> Result<HeldMoment, String> {
        let reply = self.reply()?;
        let numbers: Option<Vec<u64>> = match &reply {
            Value::Array(values) => values.iter().map(number_of).collect(),
            _ => None,
        };
        match numbers.as_deref() {
            Some(&[number, epoch, time_ms]) => Ok(HeldMoment {
                number,
                epoch: Epoch(epoch),
                time_ms,
            }),
            _ => Err(self.unexpected(&reply)),
        }
    }

    fn ask_release(&mut self, hold: u64) -> Result<(), String> {
        self.send(&["RELEASE", &hold.to_string()])
    }

    fn released(&mut self) -> Result<bool, String> {
        let reply = self.reply()?;
        match reply {
            Value::Int(lasted) => Ok(lasted == 1),
            other => Err(self.unexpected(&other)),
        }
    }
}

fn number_of(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}
