//! `INFO`: the status of the server, in Redis's sections and under its names where it has them.
//!
//! Most are rows of the table in [`crate::metrics`]; those for each command and each kind of error are in
//! [`crate::command_statistics`].

use resp::Args;

use crate::command_statistics::{self, CommandStatistics};
use crate::metrics::{InfoSection, write_databases, write_section};
use crate::server_state::ServerState;
use crate::server_status::ServerStatus;

/// How the contents of a section are written.
enum SectionContent {
    Rows(InfoSection),
    Written(fn(&CommandStatistics, &mut String)),
    /// Of all databases.
    Databases,
}

/// The words for which a section is shown, besides its own name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Selection {
    /// No word at all, `default`, and what shows more.
    Default,
    /// `all`, and what shows more.
    All,
    /// `everything`.
    Everything,
}

const fn rows(
    name: &'static str,
    section: InfoSection,
) -> (&'static str, Selection, SectionContent) {
    (name, Selection::Default, SectionContent::Rows(section))
}

const SECTIONS: [(&str, Selection, SectionContent); 16] = [
    rows("Server", InfoSection::Server),
    rows("Clients", InfoSection::Clients),
    rows("Memory", InfoSection::Memory),
    rows("Persistence", InfoSection::Persistence),
    rows("Log", InfoSection::Log),
    rows("Checkpoints", InfoSection::Checkpoints),
    rows("Recovery", InfoSection::Recovery),
    rows("Stats", InfoSection::Stats),
    rows("Replication", InfoSection::Replication),
    rows("CPU", InfoSection::Cpu),
    // There are none.
    (
        "Modules",
        Selection::Everything,
        SectionContent::Written(|_, _| {}),
    ),
    (
        "Commandstats",
        Selection::All,
        SectionContent::Written(command_statistics::write_commands),
    ),
    (
        "Errorstats",
        Selection::Default,
        SectionContent::Written(command_statistics::write_errors),
    ),
    (
        "Latencystats",
        Selection::All,
        SectionContent::Written(command_statistics::write_latencies),
    ),
    rows("Cluster", InfoSection::Cluster),
    ("Keyspace", Selection::Default, SectionContent::Databases),
];

/// Returns the sections that these words select. Words that select none are ignored, as by Redis.
pub(crate) fn report(server: &ServerState, asked: Args<'_>) -> String {
    let status = ServerStatus::now(server);
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let selection = |word: &[u8]| match () {
        () if is(word, "default") => Some(Selection::Default),
        () if is(word, "all") => Some(Selection::All),
        () if is(word, "everything") => Some(Selection::Everything),
        () => None,
    };
    let most = match asked.is_empty() {
        true => Some(Selection::Default),
        false => asked.iter().filter_map(selection).max(),
    };
    let mut text = String::new();
    for (name, least, content) in &SECTIONS {
        let selected = most.is_some_and(|most| *least <= most);
        if !selected && !asked.iter().any(|word| is(word, name)) {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        text.push_str(&format!("# {name}\r\n"));
        match content {
            SectionContent::Rows(section) => write_section(*section, &status, &mut text),
            SectionContent::Written(write) => write(&server.statistics, &mut text),
            SectionContent::Databases => write_databases(&status, &mut text),
        }
    }
    text
}
