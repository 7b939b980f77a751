//! Commands on the connection itself.

use std::sync::atomic::Ordering;
use std::time::Duration;

use resp::{Args, Protocol};

use super::{int, is};
use crate::clients::Client;
use crate::connection::{Connection, Replies};
use crate::refusal::{self, WRONG_PASSWORD};
use crate::shared::{Context, Signal};
use crate::task::Task;

pub(super) fn ping(_: &mut Context, connection: &mut Connection, args: Args<'_>) {
    match args.len() {
        1 => connection.writer().status("PONG"),
        2 => connection.writer().bulk(args.at(1)),
        _ => connection
            .writer()
            .error("ERR wrong number of arguments for 'ping' command"),
    }
}

pub(super) fn echo(_: &mut Context, connection: &mut Connection, args: Args<'_>) {
    connection.writer().bulk(args.at(1));
}

/// Accepts database 0, the only one. For another one the connection is closed after the error: many
/// clients go on after it, and what they then write, or flush, would be in database 0.
pub(super) fn select(_: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let refusal = match int(args.at(1)) {
        Ok(0) => return connection.writer().ok(),
        Ok(number) if i32::try_from(number).is_ok() => "ERR DB index is out of range",
        Ok(_) => "ERR value is out of range, value must between -2147483648 and 2147483647",
        Err(_) => "ERR value is not an integer or out of range",
    };
    connection.writer().error(refusal);
    connection.state.closing = true;
}

pub(super) fn quit(_: &mut Context, connection: &mut Connection, _: Args<'_>) {
    connection.writer().ok();
    connection.state.closing = true;
}

pub(super) fn reset(context: &mut Context, connection: &mut Connection, _: Args<'_>) {
    connection.block = None;
    connection.note_block();
    connection.watches.clear();
    connection.snapshot = None;
    connection.reads_stale = false;
    connection.replies = Replies::On;
    connection.set_protocol(Protocol::Resp2);
    connection.client.names.lock().name.clear();
    connection.authenticated = context.shared.config.password.is_none();
    connection.writer().status("RESET");
}

/// Returns `true` if the name and the password are those of the only user.
fn is_user(context: &Context, user: &[u8], password: &[u8]) -> bool {
    let Some(expected) = &context.shared.config.password else {
        // Without a password the user accepts any.
        return user == b"default";
    };
    let same_password = same(password, expected.as_bytes());
    user == b"default" && same_password
}

/// Compares two texts in a time that does not depend on how far they agree.
fn same(given: &[u8], expected: &[u8]) -> bool {
    let mut difference = u8::from(given.len() != expected.len());
    for (at, &byte) in given.iter().enumerate() {
        let other = if expected.is_empty() {
            !byte
        } else {
            expected[at % expected.len()]
        };
        difference |= std::hint::black_box(byte ^ other);
    }
    difference == 0
}

/// The delay of the answer to a connection's first wrong password. It doubles with each further
/// one, up to a second.
const DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// Refuses a client that has given a wrong name or password: counts it, logs it, and answers after
/// a delay, in which nothing else of the connection is executed. Within a block it answers at once,
/// because only an authenticated client can have a block.
fn refuse_password(context: &mut Context, connection: &mut Connection) {
    let counters = &context.shared.counters;
    counters.auth_failures.fetch_add(1, Ordering::Relaxed);
    let text = "a client gave a wrong name or password";
    context.warn(connection.client.address, text, text);
    if context.in_block {
        return connection.writer().error(WRONG_PASSWORD);
    }
    let delay = connection.password_delay.max(DELAY).min(LONGEST_DELAY);
    connection.password_delay = 2 * delay;
    let until = context.shared.started.elapsed() + delay;
    connection.task = Some(Task::Refused { until });
}

pub(super) fn auth(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let (user, password) = match args.len() {
        2 if context.shared.config.password.is_none() => {
            return connection.writer().error(
                "ERR AUTH <password> called without any password configured for the default \
                 user. Are you sure your configuration is correct?",
            );
        }
        2 => (&b"default"[..], args.at(1)),
        3 => (args.at(1), args.at(2)),
        _ => return connection.writer().error("ERR syntax error"),
    };
    if is_user(context, user, password) {
        connection.authenticated = true;
        connection.writer().ok();
    } else {
        refuse_password(context, connection);
    }
}

pub(super) fn hello(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    if let Err(text) = say_hello(context, connection, args) {
        if text == WRONG_PASSWORD.as_bytes() {
            return refuse_password(context, connection);
        }
        return connection.writer().error_bytes(&text);
    }
    let id = connection.client.id as i64;
    let mode = context.shared.mode();
    let role = match super::replication::follower(&context.shared) {
        None => "master",
        Some(_) => "replica",
    };
    let mut writer = connection.writer();
    let protocol = writer.protocol().number();
    writer.map(7);
    for (name, value) in [
        ("server", "redis"),
        ("version", ::admin::about::REDIS_VERSION),
    ] {
        writer.bulk(name.as_bytes());
        writer.bulk(value.as_bytes());
    }
    for (name, value) in [("proto", protocol), ("id", id)] {
        writer.bulk(name.as_bytes());
        writer.int(value);
    }
    for (name, value) in [("mode", mode), ("role", role)] {
        writer.bulk(name.as_bytes());
        writer.bulk(value.as_bytes());
    }
    writer.bulk(b"modules");
    writer.array(0);
}

/// Does what `HELLO` requests, or returns why it cannot. As in Redis each option takes effect in
/// its turn, also when a later one is refused.
fn say_hello(
    context: &Context,
    connection: &mut Connection,
    args: Args<'_>,
) -> Result<(), Vec<u8>> {
    let protocol = match args.get(1).map(int) {
        None => connection.protocol,
        Some(Ok(2)) => Protocol::Resp2,
        Some(Ok(3)) => Protocol::Resp3,
        Some(Ok(_)) => return Err(b"NOPROTO unsupported protocol version".to_vec()),
        Some(Err(_)) => {
            return Err(b"ERR Protocol version is not an integer or out of range".to_vec());
        }
    };
    let mut at = 2;
    while let Some(option) = args.get(at) {
        let rest = args.len() - at - 1;
        if is(option, "auth") && rest >= 2 {
            if !is_user(context, args.at(at + 1), args.at(at + 2)) {
                return Err(WRONG_PASSWORD.as_bytes().to_vec());
            }
            connection.authenticated = true;
            at += 3;
        } else if is(option, "setname") && rest >= 1 {
            let name = args.at(at + 1);
            check_name(name, BAD_NAME)?;
            connection.client.names.lock().name = name.to_vec();
            at += 2;
        } else {
            return Err([
                b"ERR Syntax error in HELLO option '",
                refusal::shown(option),
                b"'",
            ]
            .concat());
        }
    }
    if !connection.authenticated {
        return Err(
            b"NOAUTH HELLO must be called with the client already authenticated, \
            otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and \
            select the RESP protocol version at the same time"
                .to_vec(),
        );
    }
    connection.set_protocol(protocol);
    Ok(())
}

const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

fn check_name(name: &[u8], bad: &str) -> Result<(), Vec<u8>> {
    let fine = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    if fine {
        Ok(())
    } else {
        Err(bad.as_bytes().to_vec())
    }
}

pub(super) fn client_id(_: &mut Context, connection: &mut Connection, _: Args<'_>) {
    let id = connection.client.id as i64;
    connection.writer().int(id);
}

/// Updates what other connections see of this client.
pub(crate) fn note_client(context: &Context, connection: &Connection) {
    let client = &connection.client;
    client.names.lock().last_command = connection.last_command;
    let ms = (context.shared.started + context.now).saturating_duration_since(client.since);
    client
        .last_ms
        .store(ms.as_millis() as u64, Ordering::Relaxed);
}

pub(super) fn client_info(context: &mut Context, connection: &mut Connection, _: Args<'_>) {
    note_client(context, connection);
    let mut text = Vec::new();
    connection.client.describe(&mut text);
    text.push(b'\n');
    connection.writer().verbatim(b"txt", &text);
}

/// Returns `true` if a type of clients is the one that all clients have. Returns an error if there
/// is no such type.
fn is_normal(kind: &[u8]) -> Result<bool, String> {
    match kind.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(true),
        b"master" | b"replica" | b"slave" | b"pubsub" => Ok(false),
        _ => Err(format!(
            "ERR Unknown client type '{}'",
            String::from_utf8_lossy(refusal::shown(kind))
        )),
    }
}

/// Returns an error for every user but the only one.
fn check_user(user: &[u8]) -> Result<(), String> {
    match user {
        b"default" => Ok(()),
        _ => Err(format!(
            "ERR No such user '{}'",
            String::from_utf8_lossy(refusal::shown(user))
        )),
    }
}

pub(super) fn client_list(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    note_client(context, connection);
    let clients = context.shared.clients.list();
    let chosen: Result<Vec<_>, String> = match (args.get(2), args.get(3)) {
        (None, _) => Ok(clients),
        (Some(option), Some(kind)) if is(option, "type") && args.len() == 4 => {
            is_normal(kind).map(|normal| if normal { clients } else { Vec::new() })
        }
        (Some(option), Some(user)) if is(option, "user") && args.len() == 4 => {
            check_user(user).map(|()| clients)
        }
        (Some(option), Some(_)) if is(option, "id") => {
            let ids: Result<Vec<i64>, _> = args.from(3).iter().map(int).collect();
            ids.map_err(|_| "ERR Invalid client ID".to_owned())
                .map(|ids| {
                    clients
                        .into_iter()
                        .filter(|c| ids.contains(&(c.id as i64)))
                        .collect()
                })
        }
        _ => Err("ERR syntax error".to_owned()),
    };
    match chosen {
        Ok(clients) => {
            let mut text = Vec::new();
            for client in clients {
                client.describe(&mut text);
                text.push(b'\n');
            }
            connection.writer().verbatim(b"txt", &text);
        }
        Err(error) => connection.writer().error(&error),
    }
}

pub(super) fn client_setname(_: &mut Context, connection: &mut Connection, args: Args<'_>) {
    match check_name(args.at(2), BAD_NAME) {
        Ok(()) => {
            connection.client.names.lock().name = args.at(2).to_vec();
            connection.writer().ok();
        }
        Err(text) => connection.writer().error_bytes(&text),
    }
}

pub(super) fn client_getname(_: &mut Context, connection: &mut Connection, _: Args<'_>) {
    let name = connection.client.names.lock().name.clone();
    let mut writer = connection.writer();
    if name.is_empty() {
        writer.null()
    } else {
        writer.bulk(&name)
    }
}

pub(super) fn client_setinfo(_: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let (option, value) = (args.at(2), args.at(3));
    let field = if is(option, "lib-name") {
        "lib-name"
    } else if is(option, "lib-ver") {
        "lib-ver"
    } else {
        let text = [b"ERR Unrecognized option '", refusal::shown(option), b"'"].concat();
        return connection.writer().error_bytes(&text);
    };
    let bad = format!("ERR {field} cannot contain spaces, newlines or special characters.");
    if let Err(text) = check_name(value, &bad) {
        return connection.writer().error_bytes(&text);
    }
    let mut names = connection.client.names.lock();
    let place = if field == "lib-name" {
        &mut names.library
    } else {
        &mut names.library_version
    };
    *place = value.to_vec();
    drop(names);
    connection.writer().ok();
}

pub(super) fn client_switch(_: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let known = is(args.at(2), "on") || is(args.at(2), "off");
    let mut writer = connection.writer();
    if known {
        writer.ok()
    } else {
        writer.error("ERR syntax error")
    }
}

pub(super) fn client_reply(_: &mut Context, connection: &mut Connection, args: Args<'_>) {
    let wanted = args.at(2);
    if is(wanted, "on") {
        connection.replies = Replies::On;
        connection.writer().ok();
    } else if is(wanted, "off") {
        connection.replies = Replies::Off;
    } else if is(wanted, "skip") {
        if connection.replies != Replies::Off {
            connection.replies = Replies::SkipNext;
        }
    } else {
        connection.writer().error("ERR syntax error");
    }
}

/// Writes Redis's error for a subcommand that takes a second option at most.
fn too_many(subcommand: &str, connection: &mut Connection) {
    connection.writer().error(&format!(
        "ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try CLIENT HELP."
    ));
}

pub(super) fn client_pause(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    if args.len() > 4 {
        return too_many("PAUSE", connection);
    }
    let writes_only = match args.get(3) {
        None => false,
        Some(mode) if is(mode, "all") => false,
        Some(mode) if is(mode, "write") => true,
        Some(_) => {
            let text = "ERR CLIENT PAUSE mode must be WRITE or ALL";
            return connection.writer().error(text);
        }
    };
    let time = match int(args.at(2)) {
        Err(_) => Err("ERR timeout is not an integer or out of range"),
        Ok(ms) => u64::try_from(ms).map_err(|_| "ERR timeout is negative"),
    };
    match time {
        Err(text) => connection.writer().error(text),
        Ok(ms) => {
            let now = context.now;
            let until = now.saturating_add(Duration::from_millis(ms));
            context.shared.pause.begin(now, until, writes_only);
            connection.writer().ok();
        }
    }
}

pub(super) fn client_unpause(context: &mut Context, connection: &mut Connection, _: Args<'_>) {
    context.shared.pause.end_now();
    context.shared.signals.iter().for_each(Signal::wake);
    connection.writer().ok();
}

/// Answers `CLIENT UNBLOCK`. No command blocks its client until data arrives, so that no client can
/// be woken from one.
pub(super) fn client_unblock(_: &mut Context, connection: &mut Connection, args: Args<'_>) {
    if args.len() > 4 {
        return too_many("UNBLOCK", connection);
    }
    let known = |reason: &[u8]| is(reason, "timeout") || is(reason, "error");
    if !args.get(3).is_none_or(known) {
        let text = "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
        return connection.writer().error(text);
    }
    match int(args.at(2)) {
        Ok(_) => connection.writer().int(0),
        Err(_) => {
            let text = "ERR value is not an integer or out of range";
            connection.writer().error(text);
        }
    }
}

/// The clients that `CLIENT KILL` selects.
struct Victims<'a> {
    id: Option<i64>,
    address: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    /// `false`: the filter selects a type of client that does not exist here; all clients are normal.
    normal: bool,
    /// `true` if it spares the connection that sent the command.
    skip_me: bool,
}

impl<'a> Victims<'a> {
    fn parse(args: Args<'a>) -> Result<Victims<'a>, String> {
        let mut victims = Victims {
            id: None,
            address: None,
            local: None,
            normal: true,
            skip_me: true,
        };
        let mut at = 0;
        while let Some(option) = args.get(at) {
            let value = args.get(at + 1).ok_or("ERR syntax error")?;
            if is(option, "id") {
                let id = int(value).ok().filter(|id| *id > 0);
                victims.id = Some(id.ok_or("ERR client-id should be greater than 0")?);
            } else if is(option, "addr") {
                victims.address = Some(value);
            } else if is(option, "laddr") {
                victims.local = Some(value);
            } else if is(option, "type") {
                victims.normal = is_normal(value)?;
            } else if is(option, "user") {
                check_user(value)?;
            } else if is(option, "skipme") && (is(value, "yes") || is(value, "no")) {
                victims.skip_me = is(value, "yes");
            } else {
                return Err("ERR syntax error".to_owned());
            }
            at += 2;
        }
        Ok(victims)
    }

    fn has(&self, client: &Client, me: u64) -> bool {
        let at =
            |address: std::net::SocketAddr, given: &[u8]| address.to_string().as_bytes() == given;
        self.normal
            && self.id.is_none_or(|id| id == client.id as i64)
            && self.address.is_none_or(|given| at(client.address, given))
            && self.local.is_none_or(|given| at(client.local, given))
            && !(self.skip_me && client.id == me)
    }
}

pub(super) fn client_kill(context: &mut Context, connection: &mut Connection, args: Args<'_>) {
    // The old form names an address and is answered differently.
    let old = args.len() == 3;
    let victims = if old {
        Ok(Victims {
            id: None,
            address: Some(args.at(2)),
            local: None,
            normal: true,
            skip_me: false,
        })
    } else {
        Victims::parse(args.from(2))
    };
    let victims = match victims {
        Ok(victims) => victims,
        Err(text) => return connection.writer().error(&text),
    };
    let me = connection.client.id;
    let mut killed = 0;
    for client in context.shared.clients.list() {
        if !victims.has(&client, me) {
            continue;
        }
        killed += 1;
        if client.id == me {
            // The connection that sent the command gets its answer first.
            connection.state.closing = true;
            continue;
        }
        client.killed.store(true, Ordering::SeqCst);
        let signal = &context.shared.signals[client.runtime];
        signal.kills.store(true, Ordering::SeqCst);
        signal.wake();
    }
    let mut writer = connection.writer();
    match (old, killed) {
        (false, _) => writer.int(killed),
        (true, 0) => writer.error("ERR No such client"),
        (true, _) => writer.ok(),
    }
}

pub(super) fn client_help(_: &mut Context, connection: &mut Connection, _: Args<'_>) {
    super::admin::help("CLIENT", super::table::CLIENT, connection);
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn passwords_are_compared_whole() {
        assert!(same(b"secret", b"secret"));
        for given in [
            &b""[..],
            b"s",
            b"secre",
            b"secretsecret",
            b"Secret",
            b"secret\0",
        ] {
            assert!(!same(given, b"secret"), "{given:?}");
        }
        assert!(same(b"", b"") && !same(b"x", b""));
    }
}
