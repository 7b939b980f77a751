//! Single steps of a read, and every schedule of a few writers beside one.

use std::collections::{BTreeMap, HashSet};

use base::Timestamp;
use base::transaction::Kind;

use super::*;
use crate::ramp;

const NOW: Duration = Duration::from_secs(5);

fn id(n: u64) -> TransactionId {
    TransactionId {
        timestamp: Timestamp(n),
        unique: 0,
    }
}

fn version(n: u64, algorithm: Algorithm, keys: &[&[u8]]) -> OwnedVersion {
    OwnedVersion {
        id: id(n),
        siblings: ramp::siblings(algorithm, keys.iter().copied()).into(),
        content: Some(OwnedContent {
            value: n.to_string().into_bytes(),
            kind: Kind::String,
            deadline: None,
        }),
    }
}

fn found(n: u64, algorithm: Algorithm, keys: &[&[u8]]) -> OwnedFound {
    OwnedFound::Version(version(n, algorithm, keys))
}

const A: &[u8] = b"a";
const B: &[u8] = b"b";

fn read(algorithm: Algorithm) -> ReadAtomicRead {
    ReadAtomicRead::new(algorithm, [A, B, A], NOW)
}

fn one_of(key: &[u8], ids: impl IntoIterator<Item = u64>) -> Ask<'_> {
    let ids = ids.into_iter().map(id).collect();
    Ask::OneOf { key, ids }
}

#[test]
fn what_agrees_needs_one_round() {
    let mut reading = read(Algorithm::Fast);
    let asks: Vec<_> = reading.asks().collect();
    assert_eq!(
        asks,
        [(0, Ask::Newest { key: A }), (1, Ask::Newest { key: B })]
    );
    let answers = |n| [(n, found(7, Algorithm::Fast, &[A, B]))];
    assert_eq!(reading.answered(1, answers(0), NOW), ReadStep::Wait);
    assert_eq!(reading.answered(1, answers(0), NOW), ReadStep::Wait);
    assert_eq!(reading.answered(1, answers(1), NOW), ReadStep::Done);
    assert_eq!(reading.content(B).unwrap().value, b"7");
    assert_eq!(
        (reading.costs().rounds, reading.costs().second_asks),
        (1, 0)
    );
}

#[test]
fn a_newer_sibling_is_asked_for_by_its_id() {
    let newer = [
        (0, found(7, Algorithm::Fast, &[A, B])),
        (1, found(3, Algorithm::Fast, &[A, B])),
    ];
    let mut reading = read(Algorithm::Fast);
    assert_eq!(reading.answered(1, newer, NOW), ReadStep::Ask);
    let asks: Vec<_> = reading.asks().collect();
    assert_eq!(asks, [(1, one_of(B, [7]))]);
    let late = [(1, OwnedFound::Nothing)];
    assert_eq!(
        reading.answered(1, late, NOW),
        ReadStep::Wait,
        "of the round before"
    );
    let answer = [(1, found(7, Algorithm::Fast, &[A, B]))];
    assert_eq!(reading.answered(2, answer, NOW), ReadStep::Done);
    assert_eq!(reading.version(B).unwrap().id, id(7));
}

#[test]
fn of_what_may_be_there_the_first_round_stays_if_it_is_not() {
    for algorithm in [Algorithm::Small, Algorithm::Hybrid] {
        let mut reading = read(Algorithm::Fast);
        let answers = [
            (0, found(7, algorithm, &[A, B])),
            (1, found(3, Algorithm::Fast, &[B])),
        ];
        assert_eq!(reading.answered(1, answers, NOW), ReadStep::Ask);
        let step = reading.answered(2, [(1, OwnedFound::NotThere)], NOW);
        assert_eq!(
            (step, reading.version(B).unwrap().id),
            (ReadStep::Done, id(3))
        );
        assert_eq!(reading.costs().lost, 0);
    }
}

#[test]
fn what_must_be_there_and_is_not_was_lost() {
    let mut reading = read(Algorithm::Fast);
    let answers = [
        (0, found(7, Algorithm::Fast, &[A, B])),
        (1, found(3, Algorithm::Fast, &[B])),
    ];
    reading.answered(1, answers, NOW);
    let step = reading.answered(2, [(1, OwnedFound::NotThere)], NOW);
    assert_eq!(
        (step, reading.version(B).unwrap().id),
        (ReadStep::Done, id(3))
    );
    assert_eq!(reading.costs().lost, 1);
}

#[test]
fn older_ids_than_one_that_is_there_are_not_asked_for() {
    let keys: [&[u8]; 4] = [A, B, b"c", b"d"];
    let mut reading = ReadAtomicRead::new(Algorithm::Fast, keys, NOW);
    let answers = [
        (0, found(5, Algorithm::Small, &keys)),
        (1, found(7, Algorithm::Fast, &keys)),
        (2, found(9, Algorithm::Hybrid, &keys)),
        (3, OwnedFound::Nothing),
    ];
    assert_eq!(reading.answered(1, answers, NOW), ReadStep::Ask);
    let asks: Vec<_> = reading.asks().map(|(_, ask)| ask).collect();
    let expected = [one_of(A, [7, 9]), one_of(B, [9]), one_of(b"d", [7, 9])];
    assert_eq!(asks, expected);
}

#[test]
fn a_small_read_asks_for_all_ids_and_for_versions_without_any_begins_anew() {
    let mut reading = read(Algorithm::Small);
    let asks: Vec<_> = reading.asks().collect();
    assert_eq!(asks, [(0, Ask::Id { key: A }), (1, Ask::Id { key: B })]);
    let bare = |n| {
        OwnedFound::Version(OwnedVersion {
            id: id(n),
            siblings: [].into(),
            content: None,
        })
    };
    let mut absent = reading.clone();
    let nothing = [(0, OwnedFound::Nothing), (1, OwnedFound::Nothing)];
    assert_eq!(absent.answered(1, nothing, NOW), ReadStep::Done);
    let mut with_none = reading.clone();
    let answers = [(0, bare(0)), (1, bare(4))];
    assert_eq!(with_none.answered(1, answers, NOW), ReadStep::Ask);
    let asks: Vec<_> = with_none.asks().map(|(_, ask)| ask).collect();
    assert_eq!(asks, [Ask::Newest { key: A }, Ask::Newest { key: B }]);

    let answers = [(0, OwnedFound::Nothing), (1, bare(4))];
    assert_eq!(reading.answered(1, answers, NOW), ReadStep::Ask);
    let asks: Vec<_> = reading.asks().map(|(_, ask)| ask).collect();
    assert_eq!(asks, [one_of(A, [4]), one_of(B, [4])]);
    let answers = [
        (0, OwnedFound::NotThere),
        (1, found(4, Algorithm::Small, &[])),
    ];
    assert_eq!(reading.answered(2, answers, NOW), ReadStep::Done);
    assert_eq!(reading.content(A), None);
    assert_eq!(reading.content(B).unwrap().value, b"4");
}

#[test]
fn what_is_gone_or_late_begins_again_and_at_last_gives_up() {
    let mut reading = read(Algorithm::Fast);
    let both = |n| {
        [
            (0, found(n, Algorithm::Fast, &[A, B])),
            (1, OwnedFound::Nothing),
        ]
    };
    let mut round = 1;
    for restart in 1..=RESTARTS {
        let late = restart % 2 == 0;
        let now = if late { NOW + LONGEST * 2 } else { NOW };
        reading.begin(NOW);
        round += 1;
        let step = reading.answered(round, both(7), now);
        assert_eq!(step, ReadStep::Ask);
        round += 1;
        if !late {
            let step = reading.answered(round, [(1, OwnedFound::Gone)], NOW);
            assert_eq!(step, ReadStep::Ask);
            round += 1;
        }
        assert_eq!(reading.costs().restarts, restart);
        assert_eq!(reading.asks().count(), 2, "everything is asked again");
    }
    reading.answered(round, both(7), NOW + LONGEST);
    let step = reading.answered(round + 1, [(1, OwnedFound::Gone)], NOW);
    assert_eq!(step, ReadStep::GaveUp);
}

/// A partition for each key: its committed versions, oldest first, and its prepared ones.
#[derive(Clone, Debug, Default)]
struct Cell {
    committed: Vec<OwnedVersion>,
    prepared: Vec<OwnedVersion>,
}

impl Cell {
    fn newest(&self) -> TransactionId {
        let newest = self.committed.last();
        newest.map_or(TransactionId::ZERO, |version| version.id)
    }

    fn commit(&mut self, of: TransactionId) {
        let at = self.prepared.iter().position(|one| one.id == of);
        let version = self.prepared.remove(at.expect("it is prepared"));
        self.committed.push(version);
        self.committed.sort_by_key(|version| version.id);
    }

    fn answer(&self, ask: &Ask<'_>) -> OwnedFound {
        let version = match ask {
            Ask::Newest { .. } => self.committed.last().cloned(),
            Ask::Id { .. } => self.committed.last().map(|version| OwnedVersion {
                content: None,
                siblings: [].into(),
                ..version.clone()
            }),
            Ask::OneOf { ids, .. } => {
                let all = self.committed.iter().chain(&self.prepared);
                let asked = all.filter(|version| ids.contains(&version.id));
                let newest = asked.max_by_key(|version| version.id);
                if newest.is_none() && !self.committed.is_empty() {
                    return OwnedFound::NotThere;
                }
                newest.cloned()
            }
        };
        version.map_or(OwnedFound::Nothing, OwnedFound::Version)
    }
}

/// A schedule up to some point.
#[derive(Clone, Debug)]
struct World {
    cells: BTreeMap<&'static [u8], Cell>,
    writers: Vec<Writer>,
    reading: ReadAtomicRead,
    /// The versions that were committed when the read began.
    before: Option<BTreeMap<&'static [u8], TransactionId>>,
}

#[derive(Clone, Debug)]
struct Writer {
    id: u64,
    algorithm: Algorithm,
    keys: Vec<&'static [u8]>,
    prepared: usize,
    committed: usize,
    is_refused: bool,
}

impl Writer {
    fn is_over(&self) -> bool {
        self.is_refused || self.committed == self.keys.len()
    }
}

/// The message to a key that is handled next.
#[derive(Clone, Copy)]
enum Event {
    Write(usize),
    Read(usize),
}

impl World {
    fn new(writers: &[(Algorithm, &[&'static [u8]])], reader: Algorithm, rounds: bool) -> World {
        let keys: [&[u8]; 3] = [A, B, b"c"];
        let written = |(algorithm, keys): &(Algorithm, &[&'static [u8]]), id| Writer {
            id,
            algorithm: *algorithm,
            keys: keys.to_vec(),
            prepared: 0,
            committed: 0,
            is_refused: false,
        };
        let read = keys
            .into_iter()
            .filter(|key| writers.iter().any(|(_, of)| of.contains(key)));
        let mut reading = ReadAtomicRead::new(reader, read, NOW);
        reading.has_second_round = rounds;
        World {
            cells: keys.map(|key| (key, Cell::default())).into(),
            writers: writers
                .iter()
                .zip(1..)
                .map(|(w, id)| written(w, id))
                .collect(),
            reading,
            before: None,
        }
    }

    fn events(&self) -> Vec<Event> {
        let writers = self.writers.iter().enumerate();
        let open = writers.filter(|(_, writer)| !writer.is_over());
        let reads = self.reading.asks().map(|(at, _)| Event::Read(at));
        open.map(|(at, _)| Event::Write(at)).chain(reads).collect()
    }

    fn write(&mut self, at: usize) {
        let writer = &mut self.writers[at];
        if writer.prepared < writer.keys.len() {
            let key = writer.keys[writer.prepared];
            let cell = self.cells.get_mut(key).unwrap();
            if cell.newest() >= id(writer.id) {
                writer.is_refused = true;
                for cell in self.cells.values_mut() {
                    cell.prepared.retain(|one| one.id != id(writer.id));
                }
                return;
            }
            let mut version = version(writer.id, writer.algorithm, &writer.keys);
            if writer.id == 2 {
                version.content = None;
            }
            cell.prepared.push(version);
            writer.prepared += 1;
        } else {
            let key = writer.keys[writer.committed];
            self.cells.get_mut(key).unwrap().commit(id(writer.id));
            writer.committed += 1;
        }
    }

    /// Handles the question about one key. Returns `true` if the read is over.
    fn read(&mut self, at: usize) -> bool {
        let cells = &self.cells;
        self.before.get_or_insert_with(|| {
            let newest = |(key, cell): (&&'static [u8], &Cell)| (*key, cell.newest());
            cells.iter().map(newest).collect()
        });
        let (_, ask) = self.reading.asks().find(|(key, _)| *key == at).unwrap();
        let answer = self.cells[ask.key()].answer(&ask);
        let round = self.reading.round();
        self.reading.answered(round, [(at, answer)], NOW) == ReadStep::Done
    }

    /// Returns `true` if the read has seen a transaction in part.
    fn is_fractured(&self) -> bool {
        let seen = |key: &[u8]| {
            let version = self.reading.version(key);
            version.map_or(TransactionId::ZERO, |version| version.id)
        };
        for (key, newest) in self.before.iter().flatten() {
            let is_read = self.reading.keys().any(|one| one == *key);
            assert!(
                !is_read || seen(key) >= *newest,
                "older than what it began with"
            );
        }
        self.writers.iter().any(|writer| {
            let is_seen = writer.keys.iter().any(|key| seen(key) == id(writer.id));
            is_seen && writer.keys.iter().any(|key| seen(key) < id(writer.id))
        })
    }
}

/// Runs every schedule. Returns how many states had a read that was over, and how many of these were
/// fractured.
fn explore(first: World) -> (usize, usize) {
    let (mut over, mut fractured) = (0, 0);
    let mut seen = HashSet::new();
    let mut open = vec![first];
    while let Some(world) = open.pop() {
        for event in world.events() {
            let mut next = world.clone();
            let is_over = match event {
                Event::Write(at) => {
                    next.write(at);
                    false
                }
                Event::Read(at) => next.read(at),
            };
            if is_over {
                over += 1;
                fractured += usize::from(next.is_fractured());
            } else if seen.insert(format!("{next:?}")) {
                open.push(next);
            }
        }
    }
    (over, fractured)
}

const ABC: &[&[u8]] = &[A, B, b"c"];

#[test]
fn no_schedule_of_two_writers_fractures_a_read_with_any_mix_of_algorithms() {
    for first in Algorithm::ALL {
        for second in Algorithm::ALL {
            for reader in Algorithm::ALL {
                let writers = [(first, &ABC[..2]), (second, &ABC[..2])];
                let (over, fractured) = explore(World::new(&writers, reader, true));
                assert!(over > 100, "{over}");
                assert_eq!(fractured, 0, "{first} {second} {reader}");
            }
        }
    }
}

#[test]
fn no_schedule_of_three_writers_over_overlapping_keys_fractures_a_read() {
    for (n, reader) in Algorithm::ALL.into_iter().enumerate() {
        let algorithm = |of: usize| Algorithm::ALL[(n + of) % 3];
        let writers = [
            (algorithm(0), &ABC[..2]),
            (algorithm(1), &ABC[1..]),
            (algorithm(2), &ABC[..1]),
        ];
        let (over, fractured) = explore(World::new(&writers, reader, true));
        assert!(over > 1000, "{over}");
        assert_eq!(fractured, 0, "{reader}");
    }
}

#[test]
fn without_the_second_round_reads_fracture() {
    for algorithm in Algorithm::ALL {
        let writers = [(algorithm, &ABC[..2]), (algorithm, &ABC[..2])];
        let (_, fractured) = explore(World::new(&writers, algorithm, false));
        assert!(fractured > 0, "{algorithm}");
    }
}
