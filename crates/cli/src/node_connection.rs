//! Sends commands to nodes, by the protocol and at the address of their clients.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use cluster::topology::NodeInfo;
use reactor::tls::{BlockingStream, ClientTls, handshake_error};
use resp::command::write_command;
use resp::{ReplyParser, Value};
use server::replication::Report;

use crate::passwords;
use crate::tls_options::NodeTlsOptions;

/// How long a node may take to be reached, and to answer with its state.
const PATIENCE: Duration = Duration::from_secs(2);

/// The error for a node that closed the connection before it answered.
pub(crate) const CLOSED: &str = "it has closed the connection";

/// How a command identifies itself to nodes, and recognises them.
#[derive(Args, Debug)]
pub(crate) struct CredentialOptions {
    /// The password of the nodes' clients; default: that in the environment variable
    /// KUMIKI_PASSWORD, if there is one.
    #[arg(long, value_name = "PASSWORD")]
    password: Option<String>,
    /// A file with the password, which other users must not be able to read.
    #[arg(long, value_name = "FILE", conflicts_with = "password")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    tls: NodeTlsOptions,
}

/// The password for nodes with the name of its user, and the settings of TLS, as far as there are any.
pub(crate) struct Credentials {
    user: Option<String>,
    password: Option<String>,
    tls: Option<ClientTls>,
}

impl Credentials {
    /// Returns those of a user, without TLS.
    pub(crate) fn of_user(user: Option<String>, password: Option<String>) -> Credentials {
        Credentials {
            user,
            password,
            tls: None,
        }
    }

    /// Returns the words of the command by which a connection authenticates itself, if it has to.
    pub(crate) fn authentication(&self) -> Option<Vec<&str>> {
        let password = self.password.as_deref()?;
        let user = self.user.as_deref();
        Some(["AUTH"].into_iter().chain(user).chain([password]).collect())
    }
}

impl CredentialOptions {
    /// Reads the files.
    ///
    /// # Errors
    /// The text says which file cannot be used.
    pub(crate) fn open(&self) -> Result<Credentials, String> {
        let given = passwords::given(self.password.as_ref(), self.password_file.as_deref())?;
        let tls = self.tls.files().as_ref().map(ClientTls::load).transpose();
        Ok(Credentials {
            user: None,
            password: given.or_else(|| std::env::var("KUMIKI_PASSWORD").ok()),
            tls: tls.map_err(|error| error.to_string())?,
        })
    }
}

/// A connection to a node.
pub(crate) struct NodeConnection {
    stream: BlockingStream,
    buffer: Vec<u8>,
    parser: ReplyParser,
}

impl NodeConnection {
    /// Connects to the first of these addresses that accepts.
    ///
    /// # Errors
    /// Returns the refusal of the last one.
    pub(crate) fn connect_first(
        addresses: &[SocketAddr],
        credentials: &Credentials,
    ) -> Result<(SocketAddr, NodeConnection), String> {
        let mut refusal = "the name has no address".to_owned();
        for &address in addresses {
            match NodeConnection::connect(address, credentials) {
                Ok(connection) => return Ok((address, connection)),
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }

    /// Connects, and gives the password if there is one.
    ///
    /// # Errors
    /// The text says why it could not connect.
    pub(crate) fn connect(
        address: SocketAddr,
        credentials: &Credentials,
    ) -> Result<NodeConnection, String> {
        let told = |error: std::io::Error| format!("{address} does not answer: {error}");
        let stream = BlockingStream::connect(address, credentials.tls.as_ref(), PATIENCE);
        let mut connection = NodeConnection {
            stream: stream.map_err(told)?,
            buffer: Vec::new(),
            parser: ReplyParser::new(),
        };
        if let Some(words) = credentials.authentication() {
            let greeted = connection.ask(&words, PATIENCE);
            greeted.map_err(|error| format!("{address} refuses the password: {error}"))?;
        }
        Ok(connection)
    }

    /// Connects to a node of a cluster, over TLS at the address that the cluster's file has for it.
    ///
    /// # Errors
    /// The text says why it could not connect.
    pub(crate) fn to_node(
        node: &NodeInfo,
        credentials: &Credentials,
    ) -> Result<NodeConnection, String> {
        if credentials.tls.is_some() && node.tls.is_none() {
            return Err(
                "the cluster's file has no address for TLS (tls) of it: add one, or leave out --node-tls"
                    .to_owned(),
            );
        }
        let address = node.client_address(credentials.tls.is_some());
        NodeConnection::connect(address, credentials)
    }

    /// Returns the node's report on its partition.
    ///
    /// # Errors
    /// The text says why there is no report.
    pub(crate) fn report(&mut self) -> Result<Report, String> {
        let text = self.ask(&["CLUSTER", "REPLICATION", "STATUS"], PATIENCE)?;
        Report::parse(&text).map_err(|error| error.to_string())
    }

    /// Sends a command and waits up to `patience` for its reply, which is a text.
    ///
    /// # Errors
    /// The error that the node answered with, or the reason why there is no answer.
    pub(crate) fn ask(&mut self, args: &[&str], patience: Duration) -> Result<String, String> {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        self.send(&args)?;
        match self.reply(patience)? {
            Value::Status(text) | Value::Bulk(text) | Value::Verbatim { text, .. } => {
                Ok(String::from_utf8_lossy(&text).into_owned())
            }
            other => Err(format!("its answer is malformed: {other:?}")),
        }
    }

    /// Sends a command, whose reply comes behind those of earlier commands.
    ///
    /// # Errors
    /// The node is gone.
    pub(crate) fn send(&mut self, args: &[&[u8]]) -> Result<(), String> {
        let mut request = Vec::new();
        write_command(&mut request, args);
        self.stream.write_all(&request).map_err(silent)
    }

    /// Sends commands, as clients write them, and returns their replies, errors among them. Waits up to `patience` for
    /// each part to be taken and to come.
    ///
    /// # Errors
    /// The reason why there are no more answers.
    pub(crate) fn pipeline(
        &mut self,
        commands: &[u8],
        count: usize,
        patience: Duration,
    ) -> Result<Vec<Value>, String> {
        self.stream.set_timeout(patience).map_err(silent)?;
        self.stream.write_all(commands).map_err(silent)?;
        (0..count).map(|_| self.value()).collect()
    }

    /// Returns the next reply; waits up to `patience` for more of it to come.
    ///
    /// # Errors
    /// The error that the node answered with, or the reason why there is no answer.
    pub(crate) fn reply(&mut self, patience: Duration) -> Result<Value, String> {
        self.stream.set_timeout(patience).map_err(silent)?;
        match self.value()? {
            Value::Error(text) => Err(advised(&String::from_utf8_lossy(&text))),
            value => Ok(value),
        }
    }

    fn value(&mut self) -> Result<Value, String> {
        loop {
            let parsed = self.parser.parse(&self.buffer);
            if let Some(end) = parsed.map_err(|error| error.to_string())? {
                let value = Value::decode(&self.buffer[..end]).map_err(|error| error.to_string());
                self.buffer.drain(..end);
                return value;
            }
            let mut chunk = [0; 64 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(CLOSED.to_owned()),
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return Err("it does not answer in time".to_owned());
                }
                Err(error) => return Err(silent(error)),
            }
        }
    }
}

fn silent(error: std::io::Error) -> String {
    format!("it does not answer: {}", handshake_error(error))
}

/// Adds advice to a node's error, if this program has any.
fn advised(error: &str) -> String {
    match error.split(' ').next() {
        Some("NOAUTH") => "it wants a password: give --password, or KUMIKI_PASSWORD".to_owned(),
        Some("ERR") => error["ERR ".len()..].to_owned(),
        _ => error.to_owned(),
    }
}
