//! Measures commands on large streams, each of which makes a version, and the memory of streams.
//!
//! `cargo bench -p kumiki-values --bench streams -- [ENTRIES…]`; 10000 and 1000000 entries by default. An entry has a
//! field of 5 and a value of 10 bytes, or, as `four`, four of each; every entry is pending.
//!
//! | column | meaning |
//! |---|---|
//! | `add` | `XADD`: ns |
//! | `trim` | `XADD MAXLEN`, which removes an entry: ns |
//! | `read` | `XRANGE` of 10 entries at a random place: ns |
//! | `del` | `XDEL` of a random entry: ns |
//! | `deliver` | `XREADGROUP` of one new entry: ns |
//! | `ack` | `XACK` of a random pending entry: ns |
//! | `copied` | bytes of the nodes that one `XADD` makes |
//! | `log` | bytes of the log of one `XADD` |
//! | `entry` | bytes allocated per entry |
//! | `pending` | bytes allocated per pending entry |
//! | `single` | bytes allocated per entry if each were an element of a tree, and ns of an addition, without parsing a command |
//!
//! Times are processor times. Replaced nodes are freed 64 versions later, as by grace periods.
//!
//! Contract: there is one current version. Nodes of older versions have no readers.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::time::Duration;

use base::transaction::{Kind, Reply, ValueCall};
use kumiki_values::call::StoredData;
use kumiki_values::tree::{KeyOrder, NodeLimits, TreeBuilder, VersionStamp};
use kumiki_values::{
    CollectionEditor, CollectionRoots, ReplacedTrees, StoredValue, execute, streams,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The versions whose replaced nodes wait.
const WAITING: usize = 64;
/// The operations of a kind.
const OPERATIONS: usize = 20_000;

/// A stream, and the nodes that wait to be freed.
struct Stream {
    roots: CollectionRoots,
    stamp: VersionStamp,
    waiting: VecDeque<ReplacedTrees>,
    /// The bytes of all nodes that were made, and of those that were freed.
    made: usize,
    freed: usize,
    /// The bytes of the log.
    logged: usize,
}

impl Stream {
    fn new() -> Stream {
        let stamp = VersionStamp(1);
        let editor = CollectionEditor::of_packed(Kind::Stream, b"", stamp);
        // SAFETY: it has no version before it.
        let published = unsafe { editor.publish() };
        Stream {
            roots: published.roots,
            stamp,
            waiting: VecDeque::new(),
            made: published.allocated,
            freed: 0,
            logged: 0,
        }
    }

    /// Makes a version with changes.
    fn change(&mut self, change: impl FnOnce(&mut CollectionEditor)) {
        self.stamp.0 += 1;
        // SAFETY: the current version is not freed, and its stamp is less.
        let mut editor = unsafe { CollectionEditor::new(self.roots, Kind::Stream, self.stamp) };
        change(&mut editor);
        self.logged += editor.take_log().len();
        // SAFETY: there is one editor at a time.
        let published = unsafe { editor.publish() };
        self.roots = published.roots;
        self.made += published.allocated;
        self.waiting.push_back(published.replaced);
        if self.waiting.len() > WAITING {
            self.free_oldest();
        }
    }

    fn free_oldest(&mut self) {
        if let Some(mut replaced) = self.waiting.pop_front() {
            // SAFETY: older versions have no readers.
            self.freed += unsafe { replaced.free_some(usize::MAX) }.bytes;
        }
    }

    /// Returns the bytes of the current version.
    fn bytes(&mut self) -> usize {
        while !self.waiting.is_empty() {
            self.free_oldest();
        }
        self.made - self.freed
    }

    /// Executes a command that writes.
    fn write(&mut self, command: u16, args: &str) {
        self.change(|editor| write(editor, command, args));
    }

    fn read(&self, command: u16, args: &str) {
        // SAFETY: the nodes of the current version are not freed.
        let data = StoredData::Tree(unsafe { self.roots.view() });
        run(data, command, args);
    }
}

fn write(editor: &mut CollectionEditor, command: u16, args: &str) {
    run(StoredData::Editor(editor), command, args);
}

fn run(data: StoredData<'_>, command: u16, args: &str) {
    let args: Vec<&[u8]> = args.split(' ').map(str::as_bytes).collect();
    let call = ValueCall {
        command,
        seed: 0,
        args: args[..].into(),
    };
    let kind = Kind::Stream;
    let outcome = execute(&call, Some(StoredValue { kind, data }), 1).expect("it succeeds");
    assert!(
        !matches!(outcome.reply, Reply::Nil),
        "{command} does something"
    );
}

/// Returns the processor time that this thread has used.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the nanoseconds of an operation, which gets numbers from 0 on.
fn timed(mut operation: impl FnMut(usize)) -> f64 {
    let begin = cpu_time();
    (0..OPERATIONS).for_each(&mut operation);
    (cpu_time() - begin).as_nanos() as f64 / OPERATIONS as f64
}

/// Returns the bytes per entry of a tree that has each entry as an element, and the nanoseconds of an addition.
fn single(entries: usize, fields: &str) -> (f64, f64) {
    let limits = NodeLimits::default();
    let mut value = Vec::new();
    for field in fields.split(' ') {
        value.push(field.len() as u8);
        value.extend_from_slice(field.as_bytes());
    }
    let mut tree = TreeBuilder::<KeyOrder>::new(VersionStamp(1), limits);
    for number in 0..entries {
        tree.push(&(number as u128).to_be_bytes(), &value);
    }
    // SAFETY: it has no version before it.
    let built = unsafe { tree.finish().publish() };
    let mut root = built.root;
    let add = timed(|number| {
        let stamp = VersionStamp(number as u64 + 2);
        // SAFETY: the current version is not freed, its stamp is less, and it has one editor.
        let mut published = unsafe {
            let mut editor = root.edit(stamp, limits);
            editor.put(&((entries + number) as u128).to_be_bytes(), &value);
            editor.publish()
        };
        root = published.root;
        // SAFETY: the version before has no readers.
        unsafe { published.replaced.free_some(usize::MAX) };
    });
    // SAFETY: it has no successor, and no readers.
    unsafe { root.replace_all().free_some(usize::MAX) };
    (built.allocated as f64 / entries as f64, add)
}

fn measure(entries: usize, (name, fields): (&str, &str)) {
    let mut stream = Stream::new();
    let id = |number: usize| format!("1700000000000-{}", number + 1);
    for from in (0..entries).step_by(1000) {
        stream.change(|editor| {
            for number in from..(from + 1000).min(entries) {
                write(editor, streams::XADD, &format!("{} {fields}", id(number)));
            }
        });
    }
    let entry_bytes = stream.bytes() as f64 / entries as f64;
    stream.write(streams::XGROUP_CREATE, "group 0");
    for _ in (0..entries).step_by(1000) {
        stream.write(streams::XREADGROUP, "> 1000 group consumer");
    }
    let pending_bytes = stream.bytes() as f64 / entries as f64 - entry_bytes;
    let mut random = fastrand::Rng::with_seed(1);
    let mut any = || random.usize(..entries);
    let (made, logged) = (stream.made, stream.logged);
    let add = timed(|number| {
        let id = id(entries + number);
        stream.write(streams::XADD, &format!("{id} {fields}"));
    });
    let copied = (stream.made - made) as f64 / OPERATIONS as f64;
    let log = (stream.logged - logged) as f64 / OPERATIONS as f64;
    let deliver = timed(|_| stream.write(streams::XREADGROUP, "> 1 group consumer"));
    let ack = timed(|_| stream.write(streams::XACK, &format!("group {}", id(any()))));
    let del = timed(|_| stream.write(streams::XDEL, &id(any())));
    let read = timed(|_| stream.read(streams::XRANGE, &format!("{} + COUNT 10", id(any()))));
    let trim = timed(|number| {
        let id = id(entries + OPERATIONS + number);
        let most = entries / 2;
        stream.write(streams::XADD, &format!("MAXLEN {most} {id} {fields}"));
    });
    let (single, single_add) = single(entries, fields);
    println!(
        "{name:>6} {entries:>9} {add:>7.0} {trim:>7.0} {read:>7.0} {del:>7.0} {deliver:>7.0} {ack:>7.0} \
         {copied:>7.0} {log:>7.1} {entry_bytes:>7.1} {pending_bytes:>7.1} {single:>7.1} {single_add:>7.0}"
    );
}

fn main() {
    let given = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let mut sizes: Vec<usize> = given.map(|arg| arg.parse().expect("a number")).collect();
    if sizes.is_empty() {
        sizes = vec![10_000, 1_000_000];
    }
    println!(
        "fields   entries     add    trim    read     del deliver     ack  copied     log   entry pending  single     add"
    );
    let four = "first abcdefghij other abcdefghij third abcdefghij fours abcdefghij";
    for entries in sizes {
        for fields in [("one", "field abcdefghij"), ("four", four)] {
            measure(entries, fields);
        }
    }
}
