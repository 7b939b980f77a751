//! The import of the keys of a running server one by one, where it does not let clients replicate.
//!
//! The keys are not those of one moment: each comes as it is when it is read, and one that is written behind the scan is
//! not read again. The position is a cursor of the source's `SCAN`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pages::Progress as _;
use resp::Value;
use resp::command::write_command;

use super::deadlines::now_ms;
use super::options::ImportOptions;
use super::sending::{Batch, Entry, Sender};
use super::source_url::SourceUrl;
use super::target::Target;
use crate::node_connection::{Credentials, NodeConnection};
use crate::output::say_line;
use crate::passwords;
use crate::progress::ProgressLine;
use crate::signals::StopRequest;
use crate::table_location::resolve_as;

/// The keys of a page of `SCAN`.
const PAGE: &[u8] = b"500";
/// How long the source may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a scan goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ScanPosition {
    database: u64,
    cursor: String,
}

impl ScanPosition {
    fn parse(text: &str) -> Result<ScanPosition, String> {
        let parsed = text.split_once(':').and_then(|(database, cursor)| {
            let is_number = !cursor.is_empty() && cursor.bytes().all(|byte| byte.is_ascii_digit());
            Some(ScanPosition {
                database: database.parse().ok().filter(|_| is_number)?,
                cursor: cursor.to_owned(),
            })
        });
        parsed.ok_or_else(|| {
            "--continue-at: of a scan it is a database and a cursor, for example 0:1234".to_owned()
        })
    }
}

impl std::fmt::Display for ScanPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.database, self.cursor)
    }
}

/// Imports.
///
/// # Errors
/// The text says why it has ended early, and where it can go on.
pub(super) fn run(options: &ImportOptions, url: &SourceUrl) -> Result<(), String> {
    let stop = StopRequest::on_signal()?;
    let begun = Instant::now();
    let continued = options.continue_at.as_deref();
    let continued = continued.map(ScanPosition::parse).transpose()?;
    let mut source = connect(options, url)?;
    let info = source.ask(&["INFO", "keyspace"], PATIENCE);
    let mut databases = databases_of(&info.map_err(|error| of_source(&error))?);
    databases.retain(|number, _| url.database.is_none_or(|wanted| wanted == *number));
    let target = Target::connect(&options.to, options.credentials.open()?)?;
    if !options.replace && continued.is_none() {
        target.check_empty(&databases.keys().copied().collect())?;
    }
    if let Some(first) = &continued {
        databases.retain(|number, _| *number >= first.database);
    }
    let mut scan = Scan {
        source,
        sender: Sender::start(target, options.connections, options.patience),
        stop,
        expected: databases.values().sum(),
        next: 1,
        pages: BTreeMap::new(),
        keys: 0,
        progress: ProgressLine::new("keys".to_owned()),
    };
    let sent = scan.send_all(databases.keys().copied(), continued);
    drop(scan.progress);
    let (pending, refused) = scan.sender.finish();
    let failure = match (refused.or(sent.err()), pending) {
        (Some(failure), _) => failure,
        (None, Some(_)) => "a thread that sends has panicked".to_owned(),
        (None, None) => {
            let seconds = begun.elapsed().as_secs_f64();
            say_line!("imported {} keys, in {seconds:.1} s", scan.keys);
            return Ok(());
        }
    };
    // The page of the first batch that was not acknowledged, or the one that was to be read.
    let pages = &scan.pages;
    let position = match pending {
        Some(pending) => pages.range(..=pending).next_back(),
        None => pages.last_key_value(),
    };
    Err(match position {
        Some((_, position)) => format!(
            "{failure}\nEverything before position {position} of the scan is imported. To go on there, add --continue-at \
             {position}"
        ),
        None => failure,
    })
}

fn connect(options: &ImportOptions, url: &SourceUrl) -> Result<NodeConnection, String> {
    let file = options.live.source_password_file.as_deref();
    let password = passwords::given(url.password.as_ref(), file)?;
    let addresses = resolve_as("the source", "redis://127.0.0.1:6379", &url.address)?;
    let credentials = Credentials::of_user(url.user.clone(), password);
    let connected = NodeConnection::connect_first(&addresses, &credentials);
    let (_, connection) = connected.map_err(|error| of_source(&error))?;
    Ok(connection)
}

fn of_source(error: &str) -> String {
    format!("the source: {error}")
}

/// Returns the databases that `INFO keyspace` shows, with their numbers of keys.
fn databases_of(info: &str) -> BTreeMap<u64, u64> {
    let databases = info.lines().filter_map(|line| {
        let (number, rest) = line.strip_prefix("db")?.split_once(":keys=")?;
        let keys = rest.split(',').next()?;
        Some((number.parse().ok()?, keys.trim().parse().ok()?))
    });
    databases.collect()
}

struct Scan {
    source: NodeConnection,
    sender: Sender,
    stop: StopRequest,
    /// The number of keys, about.
    expected: u64,
    /// The number that the next entry gets.
    next: u64,
    /// The positions of pages, by the numbers of their first entries.
    pages: BTreeMap<u64, ScanPosition>,
    keys: u64,
    progress: ProgressLine,
}

impl Scan {
    fn send_all(
        &mut self,
        databases: impl Iterator<Item = u64>,
        mut continued: Option<ScanPosition>,
    ) -> Result<(), String> {
        if continued.is_none() {
            self.send_functions()?;
        }
        for database in databases {
            let first = continued.take().filter(|first| first.database == database);
            let cursor = first.map_or_else(|| "0".to_owned(), |first| first.cursor);
            self.send_database(database, cursor)?;
        }
        Ok(())
    }

    /// Sends the libraries of functions, if the source has such.
    fn send_functions(&mut self) -> Result<(), String> {
        let dump: Vec<&[u8]> = vec![b"FUNCTION", b"DUMP"];
        let mut commands = Vec::new();
        write_command(&mut commands, &dump);
        let mut replies = self.exchange(&commands, 1)?;
        // Releases before 7.0 have none.
        if let Some(Value::Bulk(payload)) = replies.pop() {
            let mut batch = Batch::new(0);
            batch.push(Entry::libraries(0, &payload));
            self.sender.send(batch)?;
        }
        Ok(())
    }

    fn send_database(&mut self, database: u64, mut cursor: String) -> Result<(), String> {
        let mut select = Vec::new();
        write_command(&mut select, &[b"SELECT", database.to_string().as_bytes()]);
        if let Some(Value::Error(error)) = self.exchange(&select, 1)?.pop() {
            return Err(of_source(&String::from_utf8_lossy(&error)));
        }
        loop {
            let position = ScanPosition {
                database,
                cursor: cursor.clone(),
            };
            self.pages.insert(self.next, position);
            if self.stop.is_wanted() {
                return Err("stopped".to_owned());
            }
            let mut scan = Vec::new();
            write_command(&mut scan, &[b"SCAN", cursor.as_bytes(), b"COUNT", PAGE]);
            let reply = self.exchange(&scan, 1)?.pop();
            let (next, keys) = page_of(reply)?;
            self.send_keys(database, &keys)?;
            if next == "0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    fn send_keys(&mut self, database: u64, keys: &[Vec<u8>]) -> Result<(), String> {
        let mut commands = Vec::new();
        for key in keys {
            write_command(&mut commands, &[b"PTTL", key]);
            write_command(&mut commands, &[b"DUMP", key]);
        }
        let replies = self.exchange(&commands, 2 * keys.len())?;
        let now_ms = now_ms();
        let mut batch = Batch::new(database);
        for (key, replies) in keys.iter().zip(replies.chunks_exact(2)) {
            let name = String::from_utf8_lossy(key);
            let (left, payload) = match replies {
                [Value::Int(left), Value::Bulk(payload)] => (*left, payload),
                // It was deleted, or has expired.
                [_, Value::Null] => continue,
                [Value::Error(error), _] | [_, Value::Error(error)] => {
                    let error = String::from_utf8_lossy(error);
                    return Err(of_source(&format!("'{name}': {error}")));
                }
                other => return Err(of_source(&format!("'{name}': its answer {other:?}"))),
            };
            let deadline = u64::try_from(left).ok().map(|left| now_ms + left);
            batch.push(Entry::restore(self.next, key, payload, deadline));
            (self.next, self.keys) = (self.next + 1, self.keys + 1);
            if batch.is_full() {
                let next = Batch::new(database);
                self.sender.send(std::mem::replace(&mut batch, next))?;
            }
        }
        self.progress.done(self.keys, Some(self.expected));
        self.sender.send(batch)
    }

    fn exchange(&mut self, commands: &[u8], count: usize) -> Result<Vec<Value>, String> {
        let replies = self.source.pipeline(commands, count, PATIENCE);
        replies.map_err(|error| of_source(&error))
    }
}

/// Returns the next cursor and the keys of a reply to `SCAN`.
fn page_of(reply: Option<Value>) -> Result<(String, Vec<Vec<u8>>), String> {
    let malformed = |reply: &Option<Value>| of_source(&format!("its answer to SCAN: {reply:?}"));
    match reply {
        Some(Value::Array(page)) => match <[Value; 2]>::try_from(page) {
            Ok([Value::Bulk(cursor), Value::Array(keys)]) => {
                let keys = keys.into_iter().filter_map(|key| match key {
                    Value::Bulk(key) => Some(key),
                    _ => None,
                });
                let cursor = String::from_utf8_lossy(&cursor).into_owned();
                Ok((cursor, keys.collect()))
            }
            Ok(page) => Err(malformed(&Some(Value::Array(page.to_vec())))),
            Err(page) => Err(malformed(&Some(Value::Array(page)))),
        },
        Some(Value::Error(error)) => Err(of_source(&String::from_utf8_lossy(&error))),
        other => Err(malformed(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_as_they_were_printed() {
        for text in ["0:0", "15:18446744073709551615"] {
            assert_eq!(
                ScanPosition::parse(text).map(|one| one.to_string()),
                Ok(text.to_owned())
            );
        }
        for text in ["", "7", "x:1", "1:", "1:-2"] {
            assert!(ScanPosition::parse(text).is_err(), "{text}");
        }
    }
}
