//! Commands that the proxy answers: they concern the connection, or the proxy itself.

use admin::about::REDIS_VERSION;
use base::number::parse_int;
use base::passwords::is_same_password;
use bytes::Bytes;
use channels::client_tracking::{choose_caching, redirection, write_tracking_info};
use channels::frames::write_subscriber_pong;
use resp::{Args, Protocol, Writer};

use super::client::RedisClient;
use super::commands::NodeCommand;
use super::outcome::CommandOutcome;
use super::pubsub_command::answer_pubsub;
use super::shared_state::RedisState;
use super::tracking_service::number_of;
use crate::error::ProxyError;
use crate::runtime::protocol::{InputProgress, RequestContext};

pub(crate) const WRONG_PASSWORD: &str =
    "WRONGPASS invalid username-password pair or user is disabled.";

/// Returns `true` if a client may send the command before it has authenticated.
pub(crate) fn before_authentication(name: &str) -> bool {
    matches!(name, "auth" | "hello" | "quit" | "reset")
}

/// Returns `true` if the command runs at once even in a block.
pub(crate) fn leaves_block(name: &str) -> bool {
    matches!(name, "quit" | "reset")
}

/// Returns `true` if the command may be part of a block, where a node executes it.
pub(crate) fn goes_into_block(name: &str) -> bool {
    matches!(name, "ping" | "echo")
}

/// Returns at most 128 bytes of an argument, for an error.
fn shown(arg: &[u8]) -> String {
    String::from_utf8_lossy(&arg[..arg.len().min(128)]).into_owned()
}

/// Returns the error for a command whose second word no node knows.
pub(crate) fn unknown_subcommand(name: &str, args: Args<'_>) -> String {
    let word = shown(args.at(1));
    let name = name.to_ascii_uppercase();
    format!("ERR unknown subcommand '{word}'. Try {name} HELP.")
}

/// Returns the error for a command that no node knows.
pub(crate) fn unknown(args: Args<'_>) -> String {
    let mut text = format!(
        "ERR unknown command '{}', with args beginning with: ",
        shown(args.at(0))
    );
    for arg in args.iter().skip(1) {
        if text.len() > 256 {
            break;
        }
        text.push_str(&format!("'{}' ", shown(arg)));
    }
    text
}

/// Answers a command.
pub(crate) fn run(
    state: &RedisState,
    client: &mut RedisClient,
    command: &NodeCommand,
    args: Args<'_>,
    context: &mut RequestContext<'_>,
) -> CommandOutcome {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, client.protocol);
    let word = command.name.split('|').next().unwrap_or_default();
    match word {
        "ping" if client.takes_only_messages() && args.len() <= 2 => {
            write_subscriber_pong(args.get(1), &mut writer);
        }
        "ping" => match args.get(1) {
            None => writer.status("PONG"),
            Some(_) if args.len() > 2 => writer.error(&wrong_number("ping")),
            Some(text) => writer.bulk(text),
        },
        "echo" => match args.get(1) {
            Some(text) => writer.bulk(text),
            None => writer.error(&wrong_number("echo")),
        },
        // The commands in the database before may be on another connection to a node.
        "select" if !client.is_idle() => {
            client.alone = true;
            return CommandOutcome::PutBack(InputProgress::AwaitsReply);
        }
        "select" => select(state, client, args.get(1).unwrap_or_default(), &mut out),
        "readonly" | "readwrite" | "asking" => writer.ok(),
        "cluster" => writer.error("ERR This instance has cluster support disabled"),
        "pubsub" => answer_pubsub(state, args, &mut writer),
        "info" => {
            let text = state.info(args.get(1).unwrap_or_default());
            writer.verbatim(b"txt", text.as_bytes());
        }
        // Pending commands are answered in the protocol version in which they were sent.
        "hello" if changes_protocol(client, args) && !client.is_idle() => {
            client.alone = true;
            return CommandOutcome::PutBack(InputProgress::AwaitsReply);
        }
        "auth" | "hello" => {
            let answer = if word == "auth" { auth } else { hello };
            if answer(state, client, args, &mut out).is_err() {
                return CommandOutcome::WrongPassword;
            }
        }
        "client" => about_client(state, client, args, &mut out),
        "reset" => {
            if !client.is_idle() {
                client.alone = true;
                return CommandOutcome::PutBack(InputProgress::AwaitsReply);
            }
            client.block = None;
            for (node, connection_key) in client.own_connections.drain(..) {
                context.hang_up(node, connection_key);
            }
            client.watches.clear();
            client.protocol = Protocol::Resp2;
            client.database = 0;
            client.authenticated = state.password.is_none();
            client.name = Bytes::new();
            out.extend_from_slice(b"+RESET\r\n");
        }
        "quit" => {
            client.answer(context.out, Bytes::from_static(b"+OK\r\n"));
            return CommandOutcome::Close;
        }
        _ => writer.error(&unknown(args)),
    }
    client.answer(context.out, out.into());
    CommandOutcome::Handled
}

fn select(state: &RedisState, client: &mut RedisClient, number: &[u8], out: &mut Vec<u8>) {
    let mut writer = Writer::new(out, client.protocol);
    let number = match parse_int(number) {
        None => return writer.error("ERR value is not an integer or out of range"),
        Some(number) if i32::try_from(number).is_err() => {
            return writer
                .error("ERR value is out of range, value must between -2147483648 and 2147483647");
        }
        Some(number) => u8::try_from(number).ok(),
    };
    match number.filter(|number| *number < state.databases) {
        None => writer.error("ERR DB index is out of range"),
        // Their versions are compared in the database in which the block is executed.
        Some(number) if number != client.database && !client.watches.is_empty() => {
            writer.error("ERR the proxy selects no other database while keys are watched");
        }
        Some(number) => {
            client.database = number;
            writer.ok();
        }
    }
}

fn wrong_number(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// Returns `true` if the user's name and password are right, and counts the attempt otherwise. There is
/// one user.
fn is_user(state: &RedisState, user: &[u8], password: &[u8]) -> bool {
    let expected = state.password.as_deref().map(str::as_bytes);
    let right =
        user == b"default" && expected.is_none_or(|expected| is_same_password(password, expected));
    if !right {
        state.note_wrong_password();
    }
    right
}

/// The command has a wrong name or password. It is not answered yet.
struct WrongPassword;

fn auth(
    state: &RedisState,
    client: &mut RedisClient,
    args: Args<'_>,
    out: &mut Vec<u8>,
) -> Result<(), WrongPassword> {
    let mut writer = Writer::new(out, client.protocol);
    let (user, password): (&[u8], &[u8]) = match (args.get(1), args.get(2), args.len()) {
        (Some(password), None, 2) => (b"default", password),
        (Some(user), Some(password), 3) => (user, password),
        _ => {
            writer.error(&wrong_number("auth"));
            return Ok(());
        }
    };
    if state.password.is_none() && args.len() == 2 {
        writer.error(
            "ERR AUTH <password> called without any password configured for the default user. Are \
             you sure your configuration is correct?",
        );
        return Ok(());
    }
    if !is_user(state, user, password) {
        return Err(WrongPassword);
    }
    client.is_known();
    writer.ok();
    Ok(())
}

fn hello(
    state: &RedisState,
    client: &mut RedisClient,
    args: Args<'_>,
    out: &mut Vec<u8>,
) -> Result<(), WrongPassword> {
    let negotiated = negotiate_hello(state, client, args);
    let mut writer = Writer::new(out, client.protocol);
    match negotiated {
        Ok(()) => {}
        Err(HelloRefusal::WrongPassword) => return Err(WrongPassword),
        Err(HelloRefusal::Other(error)) => {
            writer.error_bytes(error.to_string().as_bytes());
            return Ok(());
        }
    }
    let protocol = writer.protocol().number();
    writer.map(7);
    for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        writer.bulk(name.as_bytes());
        writer.bulk(value.as_bytes());
    }
    for (name, value) in [("proto", protocol), ("id", id(client))] {
        writer.bulk(name.as_bytes());
        writer.int(value);
    }
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        writer.bulk(name.as_bytes());
        writer.bulk(value.as_bytes());
    }
    writer.bulk(b"modules");
    writer.array(0);
    Ok(())
}

/// Returns `true` if a `HELLO` asks for another version of the protocol than the client's.
fn changes_protocol(client: &RedisClient, args: Args<'_>) -> bool {
    args.get(1)
        .is_some_and(|version| version != client.protocol.number().to_string().as_bytes())
}

/// Why a `HELLO` is refused.
enum HelloRefusal {
    WrongPassword,
    Other(ProxyError),
}

impl From<ProxyError> for HelloRefusal {
    fn from(error: ProxyError) -> HelloRefusal {
        HelloRefusal::Other(error)
    }
}

fn negotiate_hello(
    state: &RedisState,
    client: &mut RedisClient,
    args: Args<'_>,
) -> Result<(), HelloRefusal> {
    let protocol = match args.get(1) {
        None => client.protocol,
        Some(b"2") => Protocol::Resp2,
        Some(b"3") => Protocol::Resp3,
        Some(_) => {
            let text = "NOPROTO unsupported protocol version";
            return Err(ProxyError::invalid_request(text).into());
        }
    };
    let mut at = 2;
    while let Some(option) = args.get(at) {
        let rest = args.len() - at - 1;
        if option.eq_ignore_ascii_case(b"auth") && rest >= 2 {
            if !is_user(state, args.at(at + 1), args.at(at + 2)) {
                return Err(HelloRefusal::WrongPassword);
            }
            client.is_known();
            at += 3;
        } else if option.eq_ignore_ascii_case(b"setname") && rest >= 1 {
            client.name = name(args.at(at + 1))?;
            at += 2;
        } else {
            let option = String::from_utf8_lossy(&option[..option.len().min(128)]);
            let text = format!("ERR Syntax error in HELLO option '{option}'");
            return Err(ProxyError::invalid_request(text).into());
        }
    }
    if !client.authenticated {
        return Err(ProxyError::invalid_request(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise \
                    the HELLO AUTH <user> <pass> option can be used to authenticate the client and \
                    select the RESP protocol version at the same time",
        )
        .into());
    }
    // A connection that watches keeps the version that it was made with.
    client.watches.lost |= client.protocol != protocol && client.watches.own.is_some();
    client.protocol = protocol;
    Ok(())
}

/// Checks a name for a connection: it must be printable and without blanks.
fn name(name: &[u8]) -> Result<Bytes, ProxyError> {
    match name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        true => Ok(Bytes::copy_from_slice(name)),
        false => Err(ProxyError::invalid_request(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        )),
    }
}

/// Returns the connection's number, which is unique.
fn id(client: &RedisClient) -> i64 {
    number_of(client.id) as i64
}

fn about_client(state: &RedisState, client: &mut RedisClient, args: Args<'_>, out: &mut Vec<u8>) {
    let protocol = client.protocol;
    let mut writer = Writer::new(out, protocol);
    let sub = args.get(1).unwrap_or_default().to_ascii_lowercase();
    match (&sub[..], args.len()) {
        (b"id", 2) => writer.int(id(client)),
        (b"getname", 2) if client.name.is_empty() => writer.null(),
        (b"getname", 2) => writer.bulk(&client.name),
        (b"setname", 3) => match name(args.at(2)) {
            Ok(name) => {
                client.name = name;
                writer.ok();
            }
            Err(error) => writer.error(&error.to_string()),
        },
        (b"setinfo", 4) => {
            let at = usize::from(args.at(2).eq_ignore_ascii_case(b"lib-ver"));
            match name(args.at(3)) {
                Ok(text) => {
                    client.library[at] = text;
                    writer.ok();
                }
                Err(error) => writer.error(&error.to_string()),
            }
        }
        (b"info" | b"list", 2) => {
            let age = state
                .started
                .elapsed()
                .saturating_sub(client.since)
                .as_secs();
            let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
            let line = format!(
                "id={} addr={} name={} age={age} db={} resp={} lib-name={} lib-ver={}\n",
                id(client),
                client.address,
                text(&client.name),
                client.database,
                protocol.number(),
                text(&client.library[0]),
                text(&client.library[1]),
            );
            writer.verbatim(b"txt", line.as_bytes());
        }
        (b"no-evict" | b"no-touch", 3) => writer.ok(),
        (b"caching", 3) => {
            let own = client.tracking.as_mut().map(|own| &mut own.settings);
            match choose_caching(own, args.at(2)) {
                Ok(()) => writer.ok(),
                Err(text) => writer.error_bytes(&text),
            }
        }
        (b"trackinginfo", 2) => {
            let own = client.tracking.as_ref().map(|own| &own.settings);
            write_tracking_info(own, &mut writer);
        }
        (b"getredir", 2) => {
            let own = client.tracking.as_ref().map(|own| &own.settings);
            writer.int(redirection(own));
        }
        _ => writer.error(
            "ERR the proxy has CLIENT ID, GETNAME, SETNAME, SETINFO, INFO, LIST (of this \
             connection), NO-EVICT, NO-TOUCH, TRACKING, TRACKINGINFO, CACHING and GETREDIR",
        ),
    }
}
