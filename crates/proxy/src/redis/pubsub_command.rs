//! `PUBSUB`: the subscriptions of the proxy's clients.

use channels::SubscriptionKind;
use resp::{Args, Writer};

use super::shared_state::RedisState;

const HELP: &[&str] = &[
    "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CHANNELS [<pattern>]",
    "    The channels that clients of this proxy subscribe to.",
    "NUMPAT",
    "    How many patterns clients of this proxy subscribe to.",
    "NUMSUB [<channel> ...]",
    "    How many clients of this proxy subscribe to each channel.",
    "SHARDCHANNELS [<pattern>]",
    "    The shard channels that clients of this proxy subscribe to.",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    How many clients of this proxy subscribe to each shard channel.",
    "HELP",
    "    Print this help.",
];

/// Answers `PUBSUB`, from the subscriptions of the proxy's clients.
pub(crate) fn answer_pubsub(state: &RedisState, args: Args<'_>, writer: &mut Writer<'_>) {
    let registry = &state.subscriptions.registry;
    let given = args.get(1).unwrap_or_default();
    let word = given.to_ascii_lowercase();
    let kind = match word.starts_with(b"shard") {
        true => SubscriptionKind::ShardChannel,
        false => SubscriptionKind::Channel,
    };
    match &word[..] {
        b"channels" | b"shardchannels" if args.len() <= 3 => {
            let names = registry.matching(kind, args.get(2));
            writer.array(names.len());
            names.iter().for_each(|name| writer.bulk(name));
        }
        b"numsub" | b"shardnumsub" => {
            let names = args.from(2);
            writer.array(2 * names.len());
            for name in names.iter() {
                writer.bulk(name);
                writer.int(registry.subscribers(kind, name) as i64);
            }
        }
        b"numpat" if args.len() == 2 => {
            writer.int(registry.names(SubscriptionKind::Pattern) as i64);
        }
        b"help" if args.len() == 2 => {
            writer.array(HELP.len());
            HELP.iter().for_each(|line| writer.status(line));
        }
        _ => {
            let word = String::from_utf8_lossy(&given[..given.len().min(128)]);
            writer.error(&format!(
                "ERR unknown subcommand or wrong number of arguments for '{word}'. Try PUBSUB HELP."
            ));
        }
    }
}
