//! The commands, a module for each family: its rows of the table, and what they do. A family uses
//! only what the families share: `arguments`, `bit_fields`, `client_name`, `client_tracking`, `help`,
//! `script_kill`, `sorted_set_results`, `values`.
//!
//! To add a command: give it a row in its family's `COMMANDS`, and the function that the row names.
//! `COMMAND`, the proxy (which asks nodes for the table) and the list in `docs/server.md` go by the
//! rows.

mod arguments;
mod authentication;
mod backup;
mod bit_fields;
mod bitmaps;
mod bits;
mod client_name;
mod client_tracking;
mod clients;
mod cluster;
mod configuration;
mod connection;
mod copies;
mod debug;
mod dump;
mod functions;
mod hashes;
mod help;
mod hyper_log_logs;
mod introspection;
mod keys;
mod latency;
mod lists;
mod memory;
mod monitor;
mod objects;
mod persistence;
mod places;
mod publish_subscribe;
mod replication;
mod script_kill;
mod scripting;
mod server;
mod sets;
mod slow_log;
mod snapshots;
mod sort;
mod sorted_set_combinations;
mod sorted_set_pops;
mod sorted_set_results;
mod sorted_sets;
mod stream_info;
mod stream_reads;
mod streams;
mod strings;
mod transactions;
mod users;
mod values;
mod waiting;

use std::sync::LazyLock;

use crate::command::CommandDefinition;
use crate::command_table::CommandTable;

/// The commands of each family, but those of second words.
const FAMILIES: [&[CommandDefinition]; 41] = [
    strings::COMMANDS,
    bits::COMMANDS,
    bitmaps::COMMANDS,
    keys::COMMANDS,
    hashes::COMMANDS,
    sorted_sets::COMMANDS,
    sorted_set_combinations::COMMANDS,
    sorted_set_pops::COMMANDS,
    places::COMMANDS,
    streams::COMMANDS,
    stream_reads::COMMANDS,
    stream_info::COMMANDS,
    sets::COMMANDS,
    hyper_log_logs::COMMANDS,
    sort::COMMANDS,
    lists::COMMANDS,
    copies::COMMANDS,
    objects::COMMANDS,
    waiting::COMMANDS,
    dump::COMMANDS,
    transactions::COMMANDS,
    connection::COMMANDS,
    authentication::COMMANDS,
    users::COMMANDS,
    clients::COMMANDS,
    server::COMMANDS,
    introspection::COMMANDS,
    configuration::COMMANDS,
    slow_log::COMMANDS,
    latency::COMMANDS,
    monitor::COMMANDS,
    memory::COMMANDS,
    debug::COMMANDS,
    replication::COMMANDS,
    persistence::COMMANDS,
    snapshots::COMMANDS,
    backup::COMMANDS,
    publish_subscribe::COMMANDS,
    scripting::COMMANDS,
    functions::COMMANDS,
    cluster::COMMANDS,
];

static TABLE: LazyLock<CommandTable> =
    LazyLock::new(|| CommandTable::new(FAMILIES.into_iter().flatten()));

/// Returns the table of commands, which the first call builds.
pub(crate) fn table() -> &'static CommandTable {
    &TABLE
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::command::CATEGORIES;

    #[test]
    fn every_command_is_found_in_any_case() {
        for command in table().all() {
            let upper = command.name.to_ascii_uppercase();
            for name in [command.name, upper.as_str()] {
                assert_eq!(
                    table().find(name.as_bytes()).map(|c| c.name),
                    Some(command.name)
                );
            }
            for sub in command.subcommands {
                assert!(sub.name.starts_with(&format!("{}|", command.name)));
                let word = &sub.name[command.name.len() + 1..];
                assert!(command.subcommand(word.as_bytes()).is_some());
            }
        }
        for name in ["", "ge", "gett", "nosuchcommand", "\u{0}\u{0}\u{0}"] {
            assert!(table().find(name.as_bytes()).is_none(), "{name:?}");
        }
    }

    #[test]
    fn commands_are_numbered_in_order() {
        let numbers: Vec<usize> = table().every().map(|command| command.number).collect();
        assert!(numbers.iter().copied().eq(0..numbers.len()));
    }

    #[test]
    fn words_of_the_table_are_known() {
        const ACCESS: [&str; 10] = [
            "RO",
            "RW",
            "OW",
            "RM",
            "access",
            "update",
            "insert",
            "delete",
            "variable_flags",
            "not_key",
        ];
        let every = table().every();
        for command in every {
            let name = command.name;
            assert_eq!(command.keys.first == 0, command.access.is_empty(), "{name}");
            assert!(
                command
                    .access
                    .replace(';', " ")
                    .split_whitespace()
                    .all(|word| ACCESS.contains(&word)),
                "{name}"
            );
            let mut categories = command.own_categories.split_whitespace();
            assert!(categories.all(|word| CATEGORIES.contains(&word)), "{name}");
            for text in [command.complexity, command.summary] {
                assert!(!text.is_empty() && !text.contains('\n'), "{name}");
            }
            assert_eq!(command.since.split('.').count(), 3, "{name}");
        }
    }

    /// Returns the names in the list of `docs/server.md`. Second words stand in brackets behind the
    /// first.
    fn documented() -> BTreeSet<String> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/server.md");
        let page = std::fs::read_to_string(path).expect("the page");
        let (_, list) = page.split_once("\n## Commands\n").expect("the list");
        let (list, _) = list.split_once("\n## ").expect("the next section");
        let mut names = BTreeSet::new();
        for row in list.lines().filter(|line| line.starts_with('|')) {
            let (mut first, mut inside) = (String::new(), false);
            for (at, part) in row.split('`').enumerate() {
                if at % 2 == 0 {
                    inside = (inside || part.contains('(')) && !part.contains(')');
                    continue;
                }
                let name = part
                    .to_ascii_lowercase()
                    .replace("select 0", "select")
                    .replace(' ', "|");
                if inside {
                    names.insert(format!("{first}|{name}"));
                } else {
                    first.clone_from(&name);
                    names.insert(name);
                }
            }
        }
        names
    }

    #[test]
    fn the_documentation_lists_every_command() {
        let every = table().every();
        // The list leaves out the HELP of commands with several words.
        let names = every
            .map(|command| command.name)
            .filter(|name| !name.ends_with("|help"));
        let own: BTreeSet<String> = names.map(str::to_owned).collect();
        assert_eq!(documented(), own);
    }
}
