//! `kumiki import`: the keys of a file that Redis or Valkey has written (`dump.rdb`), sent to a running server.
//!
//! | step | what |
//! |---|---|
//! | 1 | the file (`source`) is read once, to its checksum: a damaged one changes nothing (`survey`) |
//! | 2 | the server must have no keys in the file's databases, unless they may be replaced (`target`) |
//! | 3 | the file is read again, and its keys are sent in batches over several connections (`sending`) |
//!
//! A batch that was not answered is sent again: writing a key twice makes no difference. When the import ends early, it
//! prints the position up to which everything is there, where another one can go on.

mod sending;
mod source;
mod survey;
mod target;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use pages::Progress as _;
use values::dump::{RdbItem, RdbValue};

use crate::argument_values::parse_time;
use crate::node_connection::CredentialOptions;
use crate::output::say_line;
use crate::progress::ProgressLine;
use crate::signals::StopRequest;
use sending::{Batch, Entry, Sender};
use survey::Survey;
use target::Target;

/// Options of `kumiki import`.
#[derive(Args, Debug)]
pub(crate) struct ImportOptions {
    /// The file: the dump.rdb of Redis or Valkey, or what 'redis-cli --rdb FILE' has got from a running server.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The server: where its clients connect. Of a cluster any node, or the proxy.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6380")]
    to: String,
    #[command(flatten)]
    credentials: CredentialOptions,
    /// Import although the server has keys. Those that the file has as well are replaced.
    #[arg(long)]
    replace: bool,
    /// Go on where an import ended early: the position that it has printed.
    #[arg(long, value_name = "BYTE", default_value_t = 0)]
    continue_at: u64,
    /// Connections to each node.
    #[arg(long, value_name = "N", default_value = "4")]
    connections: NonZeroUsize,
    /// How long the server may be gone or refuse to serve before the import ends.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = patience)]
    patience: Duration,
}

fn patience(text: &str) -> Result<Duration, String> {
    parse_time(text).ok_or_else(|| "a time with its unit, for example 30s".to_owned())
}

/// Imports a file.
pub(crate) fn run(options: &ImportOptions) -> Result<(), String> {
    let stop = StopRequest::on_signal()?;
    let begun = Instant::now();
    let survey = survey::read(&options.file, options.continue_at, &stop)?;
    let target = Target::connect(&options.to, options.credentials.open()?)?;
    if !options.replace && options.continue_at == 0 {
        target.check_empty(&survey.databases)?;
    }
    let sender = Sender::start(target, options.connections, options.patience);
    let sent = send(options, &survey, &sender, &stop);
    // The batches that were given are sent to their end.
    let (position, refused) = sender.finish();
    let failure = match (refused, sent) {
        (Some(refused), _) => refused,
        (None, Err(error)) => error,
        (None, Ok(counts)) => {
            tell(&counts, begun);
            return Ok(());
        }
    };
    let position = position.unwrap_or(survey.end);
    Err(format!(
        "{failure}\nEverything before byte {position} of the file is imported. To go on there, add --continue-at \
         {position}"
    ))
}

/// What was sent.
#[derive(Debug, Default)]
struct Counts {
    keys: u64,
    expired: u64,
    libraries: u64,
}

fn tell(counts: &Counts, begun: Instant) {
    let Counts {
        keys,
        expired,
        libraries,
    } = counts;
    let mut text = format!("{keys} keys");
    if *libraries > 0 {
        text += &format!(", {libraries} libraries of functions");
    }
    if *expired > 0 {
        text += &format!("; {expired} keys had expired and were left out");
    }
    say_line!("imported {text}, in {:.1} s", begun.elapsed().as_secs_f64());
}

fn send(
    options: &ImportOptions,
    survey: &Survey,
    sender: &Sender,
    stop: &StopRequest,
) -> Result<Counts, String> {
    let path = &options.file;
    let mut reader = source::open(path)?;
    let mut progress = ProgressLine::new(format!("{}: keys", path.display()));
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now_ms.map_or(0, |since| since.as_millis() as u64);
    let (mut counts, mut passed) = (Counts::default(), 0);
    let mut batch = Batch::new(0);
    loop {
        let item = reader
            .next_item()
            .map_err(|error| source::refused(path, &error))?;
        let Some(item) = item else { break };
        let position = reader.item_position();
        let is_wanted = position >= options.continue_at;
        match item {
            RdbItem::Property { .. } => {}
            RdbItem::Database(number) => {
                sender.send(std::mem::replace(&mut batch, Batch::new(number)))?;
            }
            RdbItem::Library(source) if is_wanted => {
                counts.libraries += 1;
                batch.push(Entry::library(position, &source));
            }
            RdbItem::Key {
                key,
                deadline,
                value,
            } => {
                passed += 1;
                if deadline.is_some_and(|deadline| deadline <= now_ms) {
                    counts.expired += u64::from(is_wanted);
                } else if is_wanted {
                    counts.keys += 1;
                    batch.push(match value {
                        RdbValue::String(value) => Entry::string(position, &key, &value, deadline),
                        RdbValue::Payload(payload) => {
                            Entry::restore(position, &key, &payload, deadline)
                        }
                    });
                }
                progress.done(passed, Some(survey.keys));
            }
            RdbItem::Library(_) => {}
        }
        if batch.is_full() {
            let next = Batch::new(batch.database());
            sender.send(std::mem::replace(&mut batch, next))?;
            if stop.is_wanted() {
                return Err("stopped".to_owned());
            }
        }
    }
    sender.send(batch)?;
    Ok(counts)
}
