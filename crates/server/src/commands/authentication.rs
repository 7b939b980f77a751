//! `AUTH` and `HELLO`: how a client proves who it is, and chooses the protocol.

use std::sync::atomic::Ordering;
use std::time::Instant;

use base::passwords::is_same_password;
use resp::{Args, Protocol};

use super::arguments::{int, is};
use super::client_name::{BAD_NAME, check_name};
use crate::acl_log::DeniedLogin;
use crate::command::CommandKind::Deferred;
use crate::command::{CommandDefinition, DeferredAnswer, commands};
use crate::refusal::{self, Refusal, WRONG_PASSWORD};
use crate::runtime_context::RuntimeContext;
use crate::secret_arguments::hello_logins;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "connection";
    "hello" -1 "noscript loading stale fast no_auth allow_busy" NONE("") "connection" ""
        "6.0.0" "O(1)",
        Deferred(hello), "Chooses the protocol; may authenticate too.";
    "auth" -2 "noscript loading stale fast no_auth allow_busy" NONE("") "connection" ""
        "1.0.0" "O(1)",
        Deferred(auth), "Authenticates by password.";
};

/// Returns `true` if the name and the password are those of the only user.
fn is_user(context: &RuntimeContext, user: &[u8], password: &[u8]) -> bool {
    let Some(expected) = &context.shared.config.password else {
        // Without a password the user accepts any.
        return user == b"default";
    };
    let same_password = is_same_password(password, expected.as_bytes());
    user == b"default" && same_password
}

/// Refuses a client that has given a wrong name or password with this command: counts it, logs it, and answers after
/// a delay, in which nothing else of the connection is executed. Within a block it answers at once,
/// because only an authenticated client can have a block.
fn refuse_password(
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    (command, user): (&'static str, &[u8]),
) -> Option<DeferredAnswer> {
    let mut client = Vec::new();
    session.client.describe(&mut client);
    context.shared.acl_log.add(DeniedLogin {
        count: 1,
        in_block: context.in_block,
        command,
        user: user.to_vec(),
        at: Instant::now(),
        client,
    });
    let counters = &context.shared.counters;
    counters.auth_failures.fetch_add(1, Ordering::Relaxed);
    let text = "a client gave a wrong name or password";
    context.warn(session.client.address, text, text);
    if context.in_block {
        session.writer().error(WRONG_PASSWORD);
        return None;
    }
    let until = context.shared.started.elapsed() + session.login_delay.count();
    Some(DeferredAnswer::WrongPassword { until })
}

fn auth(
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    args: Args<'_>,
) -> Option<DeferredAnswer> {
    let (user, password) = match args.len() {
        2 if context.shared.config.password.is_none() => {
            session.writer().error(
                "ERR AUTH <password> called without any password configured for the default \
                 user. Are you sure your configuration is correct?",
            );
            return None;
        }
        2 => (&b"default"[..], args.at(1)),
        3 => (args.at(1), args.at(2)),
        _ => {
            session.writer().error("ERR syntax error");
            return None;
        }
    };
    if !is_user(context, user, password) {
        return refuse_password(context, session, ("AUTH", user));
    }
    session.authenticated = true;
    session.writer().ok();
    None
}

fn hello(
    context: &mut RuntimeContext,
    session: &mut ClientSession,
    args: Args<'_>,
) -> Option<DeferredAnswer> {
    match apply_hello(context, session, args) {
        Ok(()) => {}
        Err(Refusal::Text(WRONG_PASSWORD)) => {
            // The options up to the first wrong one have been accepted.
            let user = hello_logins(args).find_map(|at| {
                let (user, password) = (args.get(at)?, args.get(at + 1)?);
                (!is_user(context, user, password)).then_some(user)
            });
            let attempt = ("HELLO", user.unwrap_or_default());
            return refuse_password(context, session, attempt);
        }
        Err(refusal) => {
            refusal.write("hello", &mut session.writer());
            return None;
        }
    }
    let id = session.client.id as i64;
    let mode = context.shared.mode();
    let role = match context.shared.follower() {
        None => "master",
        Some(_) => "replica",
    };
    let mut writer = session.writer();
    let protocol = writer.protocol().number();
    writer.map(7);
    for (name, value) in [
        ("server", "redis"),
        ("version", admin::about::REDIS_VERSION),
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
    None
}

/// Does what `HELLO` requests, or returns why it cannot. As in Redis each option takes effect in
/// its turn, also when a later one is refused.
fn apply_hello(
    context: &RuntimeContext,
    session: &mut ClientSession,
    args: Args<'_>,
) -> Result<(), Refusal> {
    let protocol = match args.get(1).map(int) {
        None => session.protocol,
        Some(Ok(2)) => Protocol::Resp2,
        Some(Ok(3)) => Protocol::Resp3,
        Some(Ok(_)) => return Err(Refusal::Text("NOPROTO unsupported protocol version")),
        Some(Err(_)) => {
            let text = "ERR Protocol version is not an integer or out of range";
            return Err(Refusal::Text(text));
        }
    };
    let mut at = 2;
    while let Some(option) = args.get(at) {
        let rest = args.len() - at - 1;
        if is(option, "auth") && rest >= 2 {
            if !is_user(context, args.at(at + 1), args.at(at + 2)) {
                return Err(Refusal::Text(WRONG_PASSWORD));
            }
            session.authenticated = true;
            at += 3;
        } else if is(option, "setname") && rest >= 1 {
            let name = args.at(at + 1);
            check_name(name, BAD_NAME)?;
            session.client.names.lock().name = name.to_vec();
            at += 2;
        } else {
            let text = [
                b"ERR Syntax error in HELLO option '",
                refusal::shown(option),
                b"'",
            ];
            return Err(Refusal::Owned(text.concat()));
        }
    }
    if !session.authenticated {
        return Err(Refusal::Text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
             AUTH <user> <pass> option can be used to authenticate the client and select the RESP \
             protocol version at the same time",
        ));
    }
    session.set_protocol(protocol);
    Ok(())
}
