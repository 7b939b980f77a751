//! `ACL`: about the only user, `default`. Users cannot be added or changed: its password is that of
//! `--requirepass`, and it may do everything.

use resp::{Args, Writer};
use sha2::{Digest, Sha256};

use super::arguments::{int, is};
use super::help::help;
use crate::command::CommandKind::{Container, Introspection, Local};
use crate::command::{CATEGORIES, CommandDefinition, commands};
use crate::hexadecimal::hexadecimal;
use crate::refusal::{Refusal, shown, write_arity, write_subcommand_syntax};
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "server";
    "acl" -2 "" NONE("") "" ""
        "6.0.0" "Depends on subcommand.",
        Container, ACL, "About users.";
};

const ACL: &[CommandDefinition] = commands! { "server";
    "acl|cat" -2 "noscript loading stale" NONE("") "" ""
        "6.0.0" "O(1) since the categories and commands are a fixed set.",
        Introspection(cat), "The categories of commands, or the commands of one.";
    "acl|deluser" -3 "admin noscript loading stale" NONE("") "" ""
        "6.0.0" "O(1) amortized time considering the typical user.",
        Local(deluser), "Refuses to delete the only user; there are no others.";
    "acl|dryrun" -4 "admin noscript loading stale" NONE("") "" ""
        "7.0.0" "O(1).",
        Introspection(dryrun), "Whether a user may give a command.";
    "acl|genpass" -2 "noscript loading stale" NONE("") "" ""
        "6.0.0" "O(1)",
        Local(genpass), "Random hexadecimal digits for a password.";
    "acl|getuser" 3 "admin noscript loading stale" NONE("") "" ""
        "6.0.0" "O(N). Where N is the number of password, command and pattern rules that the user has.",
        Local(getuser), "What a user may do.";
    "acl|list" 2 "admin noscript loading stale" NONE("") "" ""
        "6.0.0" "O(N). Where N is the number of configured users.",
        Local(list), "What each user may do, in one line each.";
    "acl|load" 2 "admin noscript loading stale" NONE("") "" ""
        "6.0.0" "O(N). Where N is the number of configured users.",
        Local(refuse), "Refused: there is one user.";
    "acl|log" -2 "admin noscript loading stale" NONE("") "" ""
        "6.0.0" "O(N) with N being the number of entries shown.",
        Local(log), "Refused attempts to authenticate, the newest first.";
    "acl|save" 2 "admin noscript loading stale" NONE("") "" ""
        "6.0.0" "O(N). Where N is the number of configured users.",
        Local(refuse), "Refused: there is one user.";
    "acl|setuser" -3 "admin noscript loading stale" NONE("") "" ""
        "6.0.0" "O(N). Where N is the number of rules provided.",
        Local(refuse), "Refused: there is one user.";
    "acl|users" 2 "admin noscript loading stale" NONE("") "" ""
        "6.0.0" "O(N). Where N is the number of configured users.",
        Local(users), "The names of all users.";
    "acl|whoami" 2 "noscript loading stale" NONE("") "" ""
        "6.0.0" "O(1)",
        Local(whoami), "The name of the client's user.";
    "acl|help" 2 "loading stale" NONE("") "" ""
        "6.0.0" "O(1)",
        Local(acl_help), "What can be asked.";
};

/// The name of the only user.
const USER: &[u8] = b"default";
/// The bits of a password that `ACL GENPASS` makes, unless the client says otherwise, and the most.
const PASSWORD_BITS: i64 = 256;
const MOST_PASSWORD_BITS: i64 = 4096;

fn acl_help(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    help("ACL", ACL, session);
}

fn refuse(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    session.writer().error(
        "ERR there is one user, 'default', who may do everything: its password is that of --requirepass, and \
         users cannot be added, changed, loaded or saved",
    );
}

fn whoami(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    session.writer().bulk(USER);
}

fn users(_: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let mut writer = session.writer();
    writer.array(1);
    writer.bulk(USER);
}

/// Returns the digest of the user's password; `None`: any password is accepted.
fn password_digest(context: &RuntimeContext) -> Option<String> {
    let password = context.shared.config.password.as_ref()?;
    Some(hexadecimal(&Sha256::digest(password.as_bytes())))
}

fn list(context: &mut RuntimeContext, session: &mut ClientSession, _: Args<'_>) {
    let password = match password_digest(context) {
        Some(digest) => format!("#{digest}"),
        None => "nopass".to_owned(),
    };
    let mut writer = session.writer();
    writer.array(1);
    writer.bulk(format!("user default on {password} ~* &* +@all").as_bytes());
}

fn getuser(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    if args.at(2) != USER {
        return session.writer().null();
    }
    let digest = password_digest(context);
    let mut writer = session.writer();
    writer.map(6);
    writer.bulk(b"flags");
    let flags: &[&str] = match digest {
        Some(_) => &["on"],
        None => &["on", "nopass"],
    };
    writer.set(flags.len());
    flags.iter().for_each(|flag| writer.bulk(flag.as_bytes()));
    writer.bulk(b"passwords");
    writer.array(digest.iter().count());
    digest
        .iter()
        .for_each(|digest| writer.bulk(digest.as_bytes()));
    for (name, rule) in [("commands", "+@all"), ("keys", "~*"), ("channels", "&*")] {
        writer.bulk(name.as_bytes());
        writer.bulk(rule.as_bytes());
    }
    writer.bulk(b"selectors");
    writer.array(0);
}

fn deluser(_: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    if args.from(2).iter().any(|name| name == USER) {
        let text = "ERR The 'default' user cannot be removed";
        return session.writer().error(text);
    }
    session.writer().int(0);
}

fn genpass(_: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    let mut writer = session.writer();
    if args.len() > 3 {
        return write_subcommand_syntax("ACL", args, &mut writer);
    }
    let bits = match args.get(2).map(int) {
        None => PASSWORD_BITS,
        Some(Ok(bits)) if (1..=MOST_PASSWORD_BITS).contains(&bits) => bits,
        Some(Ok(_)) => {
            return writer.error(
                "ERR ACL GENPASS argument must be the number of bits for the output password, a positive \
                 number up to 4096",
            );
        }
        Some(Err(refusal)) => return refusal.write("acl|genpass", &mut writer),
    };
    let digits = (bits as usize).div_ceil(4);
    let mut random = vec![0; digits.div_ceil(2)];
    match getrandom::fill(&mut random) {
        Ok(()) => writer.bulk(&hexadecimal(&random).as_bytes()[..digits]),
        Err(error) => writer.error(&format!("ERR there is no randomness: {error}")),
    }
}

fn log(context: &mut RuntimeContext, session: &mut ClientSession, args: Args<'_>) {
    if args.len() > 3 {
        return write_subcommand_syntax("ACL", args, &mut session.writer());
    }
    let most = match args.get(2) {
        None => 10,
        Some(word) if is(word, "reset") => {
            context.shared.acl_log.clear();
            return session.writer().ok();
        }
        Some(count) => match int(count) {
            Ok(count) => usize::try_from(count).unwrap_or(0),
            Err(refusal) => return refusal.write("acl|log", &mut session.writer()),
        },
    };
    let entries = context.shared.acl_log.newest(most);
    let mut writer = session.writer();
    writer.array(entries.len());
    for entry in entries {
        writer.map(7);
        writer.bulk(b"count");
        writer.int(entry.count as i64);
        for (name, value) in [
            ("reason", &b"auth"[..]),
            (
                "context",
                if entry.in_block {
                    b"multi"
                } else {
                    b"toplevel"
                },
            ),
            ("object", entry.command.as_bytes()),
            ("username", &entry.user),
        ] {
            writer.bulk(name.as_bytes());
            writer.bulk(value);
        }
        writer.bulk(b"age-seconds");
        writer.double(entry.at.elapsed().as_millis() as f64 / 1000.0);
        writer.bulk(b"client-info");
        writer.bulk(&entry.client);
    }
}

fn cat(commands: &'static [CommandDefinition], args: Args<'_>, writer: &mut Writer<'_>) {
    if args.len() > 3 {
        return write_subcommand_syntax("ACL", args, writer);
    }
    let Some(name) = args.get(2) else {
        writer.array(CATEGORIES.len());
        return CATEGORIES
            .iter()
            .for_each(|category| writer.bulk(category.as_bytes()));
    };
    if !CATEGORIES.iter().any(|category| is(name, category)) {
        let refusal = Refusal::with_argument("ERR Unknown category", name);
        return refusal.write("acl|cat", writer);
    }
    let every = commands
        .iter()
        .flat_map(|command| std::iter::once(command).chain(command.subcommands));
    let has_it = |command: &&CommandDefinition| {
        let mut categories = command.categories();
        categories.any(|category| is(name, category))
    };
    let chosen: Vec<_> = every.filter(has_it).collect();
    writer.array(chosen.len());
    for command in chosen {
        writer.bulk(command.name.as_bytes());
    }
}

fn dryrun(commands: &'static [CommandDefinition], args: Args<'_>, writer: &mut Writer<'_>) {
    let (user, call) = (args.at(2), args.from(3));
    if user != USER {
        let text = [b"ERR User '", shown(user), b"' not found"];
        return writer.error_bytes(&text.concat());
    }
    let mut known = commands.iter();
    let command = known.find(|command| is(call.at(0), command.name));
    let command = command.and_then(|command| match call.get(1) {
        Some(word) if !command.subcommands.is_empty() => command.subcommand(word),
        _ => Some(command),
    });
    match command {
        None => {
            let name = shown(call.at(0));
            writer.error_bytes(&[b"ERR Command '", name, b"' not found"].concat());
        }
        Some(command) if !command.takes(call.len()) => write_arity(command.name, writer),
        Some(_) => writer.ok(),
    }
}
