//! `CLIENT`: the connections of clients.

use std::sync::atomic::Ordering;
use std::time::Duration;

use resp::Args;

use super::arguments::{int, is};
use super::client_name::{BAD_NAME, check_name};
use super::client_tracking::{
    client_caching, client_getredir, client_tracking, client_trackinginfo,
};
use super::help::help;
use crate::clients::{BlockedState, ConnectedClient};
use crate::command::CommandKind::{Container, Local};
use crate::command::{CommandDefinition, commands};
use crate::refusal::Refusal;
use crate::runtime_context::RuntimeContext;
use crate::runtime_signal::{RuntimeNews, RuntimeSignal};
use crate::session::{ClientSession, ReplyMode};

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "connection";
    "client" -2 "" NONE("") "" ""
        "2.4.0" "Depends on subcommand.",
        Container, CLIENT, "About clients.";
};

const CLIENT: &[CommandDefinition] = commands! { "connection";
    "client|id" 2 "noscript loading stale" NONE("") "connection" ""
        "5.0.0" "O(1)",
        Local(client_id), "The number of this client.";
    "client|info" 2 "noscript loading stale" NONE("") "connection" "nondeterministic_output"
        "6.2.0" "O(1)",
        Local(client_info), "What is known of this client.";
    "client|list" -2 "admin noscript loading stale" NONE("") "connection" "nondeterministic_output"
        "2.4.0" "O(N) where N is the number of client connections",
        Local(client_list), "What is known of all clients.";
    "client|setname" 3 "noscript loading stale" NONE("") "connection" ""
        "2.6.9" "O(1)",
        Local(client_setname), "Names this client.";
    "client|getname" 2 "noscript loading stale" NONE("") "connection" ""
        "2.6.9" "O(1)",
        Local(client_getname), "The name of this client.";
    "client|setinfo" 4 "noscript loading stale" NONE("") "connection" ""
        "7.2.0" "O(1)",
        Local(client_setinfo), "Names this client's library.";
    "client|no-evict" 3 "admin noscript loading stale" NONE("") "connection" ""
        "7.0.0" "O(1)",
        Local(client_switch), "Accepted; no client is ever evicted.";
    "client|no-touch" 3 "noscript loading stale" NONE("") "connection" ""
        "7.2.0" "O(1)",
        Local(client_no_touch), "Says whether the commands of this client count as uses of keys.";
    "client|reply" 3 "noscript loading stale" NONE("") "connection" ""
        "3.2.0" "O(1)",
        Local(client_reply), "Says whether this client gets replies: ON, OFF, or SKIP the next one.";
    "client|pause" -3 "admin noscript loading stale" NONE("") "connection" ""
        "2.9.50" "O(1)",
        Local(client_pause), "Has commands wait for some milliseconds: ALL, or those that WRITE.";
    "client|unpause" 2 "admin noscript loading stale" NONE("") "connection" ""
        "6.2.0" "O(N) where N is the number of paused clients.",
        Local(client_unpause), "Ends a pause.";
    "client|unblock" -3 "admin noscript loading stale" NONE("") "connection" ""
        "5.0.0" "O(1)",
        Local(client_unblock), "Ends the wait of a client whose command waits: as if its time were over, or by an ERROR.";
    "client|tracking" -3 "noscript loading stale" NONE("") "connection" ""
        "6.0.0" "O(1). Some options may introduce additional complexity.",
        Local(client_tracking), "Has this client sent the news when keys change that it has read.";
    "client|caching" 3 "noscript loading stale" NONE("") "connection" ""
        "6.0.0" "O(1)",
        Local(client_caching), "Says whether the keys that the next command reads are tracked.";
    "client|trackinginfo" 2 "noscript loading stale" NONE("") "connection" ""
        "6.2.0" "O(1)",
        Local(client_trackinginfo), "The keys of which this client gets news.";
    "client|getredir" 2 "noscript loading stale" NONE("") "connection" ""
        "6.0.0" "O(1)",
        Local(client_getredir), "The client that gets the news of this one's keys: 0: itself; -1: none.";
    "client|kill" -3 "admin noscript loading stale" NONE("") "connection" ""
        "2.4.0" "O(N) where N is the number of client connections",
        Local(client_kill), "Closes connections.";
    "client|help" 2 "loading stale" NONE("") "connection" ""
        "5.0.0" "O(1)",
        Local(client_help), "What can be asked.";
};

fn client_id(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let id = session.client.id as i64;
    session.writer().int(id);
}

fn client_info(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    session.publish_activity(context);
    let mut text = Vec::new();
    session.client.describe(&mut text);
    text.push(b'\n');
    session.writer().verbatim(b"txt", &text);
}

const BAD_LIBRARY: &str = "ERR lib-name cannot contain spaces, newlines or special characters.";
const BAD_LIBRARY_VERSION: &str =
    "ERR lib-ver cannot contain spaces, newlines or special characters.";

/// A type of clients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientType {
    Normal,
    /// Clients that subscribe to channels.
    Subscriber,
    /// Other servers, which are no clients here.
    Server,
}

impl ClientType {
    fn parse(kind: &[u8]) -> Result<ClientType, Refusal> {
        match kind.to_ascii_lowercase().as_slice() {
            b"normal" => Ok(ClientType::Normal),
            b"pubsub" => Ok(ClientType::Subscriber),
            b"master" | b"replica" | b"slave" => Ok(ClientType::Server),
            _ => Err(Refusal::with_argument("ERR Unknown client type", kind)),
        }
    }

    fn is_of(self, client: &ConnectedClient) -> bool {
        match self {
            ClientType::Normal => !client.is_subscriber(),
            ClientType::Subscriber => client.is_subscriber(),
            ClientType::Server => false,
        }
    }
}

/// Returns an error for every user but the only one.
fn check_user(user: &[u8]) -> Result<(), Refusal> {
    match user {
        b"default" => Ok(()),
        _ => Err(Refusal::with_argument("ERR No such user", user)),
    }
}

fn client_list(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    session.publish_activity(context);
    let clients = context.shared.clients.list();
    let chosen: Result<Vec<_>, Refusal> = match (args.get(2), args.get(3)) {
        (None, _) => Ok(clients),
        (Some(option), Some(kind)) if is(option, "type") && args.len() == 4 => {
            ClientType::parse(kind).map(|kind| {
                let mut clients = clients;
                clients.retain(|client| kind.is_of(client));
                clients
            })
        }
        (Some(option), Some(user)) if is(option, "user") && args.len() == 4 => {
            check_user(user).map(|()| clients)
        }
        (Some(option), Some(_)) if is(option, "id") => {
            let ids: Result<Vec<i64>, _> = args.from(3).iter().map(int).collect();
            ids.map_err(|_| Refusal::Text("ERR Invalid client ID"))
                .map(|ids| {
                    clients
                        .into_iter()
                        .filter(|c| ids.contains(&(c.id as i64)))
                        .collect()
                })
        }
        _ => Err(Refusal::Syntax),
    };
    match chosen {
        Ok(clients) => {
            let mut text = Vec::new();
            for client in clients {
                client.describe(&mut text);
                text.push(b'\n');
            }
            session.writer().verbatim(b"txt", &text);
        }
        Err(refusal) => refusal.write("client|list", &mut session.writer()),
    }
}

fn client_setname(_: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    match check_name(args.at(2), BAD_NAME) {
        Ok(()) => {
            session.client.names.lock().name = args.at(2).to_vec();
            session.writer().ok();
        }
        Err(refusal) => refusal.write("client|setname", &mut session.writer()),
    }
}

fn client_getname(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let name = session.client.names.lock().name.clone();
    let mut writer = session.writer();
    if name.is_empty() {
        writer.null()
    } else {
        writer.bulk(&name)
    }
}

fn client_setinfo(_: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let (option, value) = (args.at(2), args.at(3));
    let mut names = session.client.names.lock();
    let (bad, field) = if is(option, "lib-name") {
        (BAD_LIBRARY, &mut names.library)
    } else if is(option, "lib-ver") {
        (BAD_LIBRARY_VERSION, &mut names.library_version)
    } else {
        drop(names);
        let refusal = Refusal::with_argument("ERR Unrecognized option", option);
        return refusal.write("client|setinfo", &mut session.writer());
    };
    let checked = check_name(value, bad);
    if checked.is_ok() {
        *field = value.to_vec();
    }
    drop(names);
    match checked {
        Ok(()) => session.writer().ok(),
        Err(refusal) => refusal.write("client|setinfo", &mut session.writer()),
    }
}

fn client_switch(_: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let known = is(args.at(2), "on") || is(args.at(2), "off");
    let mut writer = session.writer();
    if known {
        writer.ok()
    } else {
        writer.error("ERR syntax error")
    }
}

fn client_no_touch(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    if is(args.at(2), "on") {
        session.no_touch = true;
    } else if is(args.at(2), "off") {
        session.no_touch = false;
    }
    client_switch(context, session, args);
}

fn client_reply(_: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let mode = args.at(2);
    if is(mode, "on") {
        session.replies = ReplyMode::On;
        // A block that changes it back gets its whole reply.
        session.announced.clear();
        session.writer().ok();
    } else if is(mode, "off") {
        session.replies = ReplyMode::Off;
    } else if is(mode, "skip") {
        if session.replies != ReplyMode::Off {
            session.replies = ReplyMode::SkipNext;
        }
    } else {
        session.writer().error("ERR syntax error");
    }
}

/// Writes Redis's error for a subcommand that takes a second option at most.
fn too_many(subcommand: &str, session: &mut ClientSession) {
    session.writer().error(&format!(
        "ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try CLIENT HELP."
    ));
}

fn client_pause(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    if args.len() > 4 {
        return too_many("PAUSE", session);
    }
    let writes_only = match args.get(3) {
        None => false,
        Some(mode) if is(mode, "all") => false,
        Some(mode) if is(mode, "write") => true,
        Some(_) => {
            let text = "ERR CLIENT PAUSE mode must be WRITE or ALL";
            return session.writer().error(text);
        }
    };
    let time = match int(args.at(2)) {
        Err(_) => Err("ERR timeout is not an integer or out of range"),
        Ok(ms) => u64::try_from(ms).map_err(|_| "ERR timeout is negative"),
    };
    match time {
        Err(text) => session.writer().error(text),
        Ok(ms) => {
            let now = context.now;
            let until = now.saturating_add(Duration::from_millis(ms));
            context.shared.pause.begin(now, until, writes_only);
            session.writer().ok();
        }
    }
}

fn client_unpause(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    context.shared.pause.end_now();
    context.shared.signals.iter().for_each(RuntimeSignal::wake);
    session.writer().ok();
}

fn client_unblock(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    if args.len() > 4 {
        return too_many("UNBLOCK", session);
    }
    let state = match args.get(3) {
        Some(reason) if is(reason, "error") => BlockedState::Fails,
        Some(reason) if !is(reason, "timeout") => {
            let text = "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
            return session.writer().error(text);
        }
        _ => BlockedState::Ends,
    };
    let id = match int(args.at(2)) {
        Ok(id) => u64::try_from(id).unwrap_or(0),
        Err(refusal) => return refusal.write("client|unblock", &mut session.writer()),
    };
    let shared = &context.shared;
    let client = shared.clients.get(id);
    let unblocked = client.filter(|client| client.unblock(state));
    session.writer().int(unblocked.is_some().into());
    if let Some(client) = unblocked {
        let signal = &shared.signals[client.runtime];
        signal.send(RuntimeNews::Unblock(client));
    }
}

/// The clients that `CLIENT KILL` selects.
struct ClientFilter<'a> {
    id: Option<i64>,
    address: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    kind: Option<ClientType>,
    /// `true` if it spares the connection that sent the command.
    skip_me: bool,
}

impl<'a> ClientFilter<'a> {
    fn parse(args: Args<'a>) -> Result<ClientFilter<'a>, Refusal> {
        let mut filter = ClientFilter {
            id: None,
            address: None,
            local: None,
            kind: None,
            skip_me: true,
        };
        let mut at = 0;
        while let Some(option) = args.get(at) {
            let value = args.get(at + 1).ok_or(Refusal::Syntax)?;
            if is(option, "id") {
                let id = int(value).ok().filter(|id| *id > 0);
                filter.id =
                    Some(id.ok_or(Refusal::Text("ERR client-id should be greater than 0"))?);
            } else if is(option, "addr") {
                filter.address = Some(value);
            } else if is(option, "laddr") {
                filter.local = Some(value);
            } else if is(option, "type") {
                filter.kind = Some(ClientType::parse(value)?);
            } else if is(option, "user") {
                check_user(value)?;
            } else if is(option, "skipme") && (is(value, "yes") || is(value, "no")) {
                filter.skip_me = is(value, "yes");
            } else {
                return Err(Refusal::Syntax);
            }
            at += 2;
        }
        Ok(filter)
    }

    fn has(&self, client: &ConnectedClient, me: u64) -> bool {
        let at =
            |address: std::net::SocketAddr, given: &[u8]| address.to_string().as_bytes() == given;
        self.kind.is_none_or(|kind| kind.is_of(client))
            && self.id.is_none_or(|id| id == client.id as i64)
            && self.address.is_none_or(|given| at(client.address, given))
            && self.local.is_none_or(|given| at(client.local, given))
            && !(self.skip_me && client.id == me)
    }
}

fn client_kill(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    // The old form names an address and is answered differently.
    let old = args.len() == 3;
    let filter = if old {
        Ok(ClientFilter {
            id: None,
            address: Some(args.at(2)),
            local: None,
            kind: None,
            skip_me: false,
        })
    } else {
        ClientFilter::parse(args.from(2))
    };
    let filter = match filter {
        Ok(filter) => filter,
        Err(refusal) => return refusal.write("client|kill", &mut session.writer()),
    };
    let me = session.client.id;
    let mut killed = 0;
    for client in context.shared.clients.list() {
        if !filter.has(&client, me) {
            continue;
        }
        killed += 1;
        if client.id == me {
            // The connection that sent the command gets its answer first.
            session.closing = true;
            continue;
        }
        client.killed.store(true, Ordering::SeqCst);
        let signal = &context.shared.signals[client.runtime];
        signal.kills.store(true, Ordering::SeqCst);
        signal.wake();
    }
    let mut writer = session.writer();
    match (old, killed) {
        (false, _) => writer.int(killed),
        (true, 0) => writer.error("ERR No such client"),
        (true, _) => writer.ok(),
    }
}

fn client_help(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    help("CLIENT", CLIENT, session);
}
