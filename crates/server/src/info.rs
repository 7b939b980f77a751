//! `INFO`: figures about the server, in Redis's sections and under its names where it has them.
//!
//! Most are rows of the table in [`crate::metrics`]; those for each command and each kind of error are in
//! [`crate::statistics`].

use resp::Args;

use crate::figures::Figures;
use crate::metrics::{Section, write_section};
use crate::shared::Shared;
use crate::statistics;

/// How the contents of a section are written.
enum Content {
    Rows(Section),
    Written(fn(&Shared, &mut String)),
}

/// The words for which a section is shown, besides its own name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// No word at all, `default`, and what shows more.
    Default,
    /// `all`, and what shows more.
    All,
    /// `everything`.
    Everything,
}

const fn rows(name: &'static str, section: Section) -> (&'static str, Group, Content) {
    (name, Group::Default, Content::Rows(section))
}

const SECTIONS: [(&str, Group, Content); 16] = [
    rows("Server", Section::Server),
    rows("Clients", Section::Clients),
    rows("Memory", Section::Memory),
    rows("Persistence", Section::Persistence),
    rows("Log", Section::Log),
    rows("Checkpoints", Section::Checkpoints),
    rows("Recovery", Section::Recovery),
    rows("Stats", Section::Stats),
    rows("Replication", Section::Replication),
    rows("CPU", Section::Cpu),
    // There are none.
    ("Modules", Group::Everything, Content::Written(|_, _| {})),
    (
        "Commandstats",
        Group::All,
        Content::Written(statistics::write_commands),
    ),
    (
        "Errorstats",
        Group::Default,
        Content::Written(statistics::write_errors),
    ),
    (
        "Latencystats",
        Group::All,
        Content::Written(statistics::write_latencies),
    ),
    rows("Cluster", Section::Cluster),
    rows("Keyspace", Section::Keyspace),
];

/// Returns the sections that these words select. Words that select none are ignored, as by Redis.
pub(crate) fn report(shared: &Shared, asked: Args<'_>) -> String {
    let figures = Figures::now(shared);
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let group = |word: &[u8]| match () {
        () if is(word, "default") => Some(Group::Default),
        () if is(word, "all") => Some(Group::All),
        () if is(word, "everything") => Some(Group::Everything),
        () => None,
    };
    let most = match asked.is_empty() {
        true => Some(Group::Default),
        false => asked.iter().filter_map(group).max(),
    };
    let mut text = String::new();
    for (name, least, content) in &SECTIONS {
        let in_group = most.is_some_and(|most| *least <= most);
        if !in_group && !asked.iter().any(|word| is(word, name)) {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        text.push_str(&format!("# {name}\r\n"));
        match content {
            Content::Rows(section) => write_section(*section, &figures, &mut text),
            Content::Written(write) => write(shared, &mut text),
        }
    }
    text
}
