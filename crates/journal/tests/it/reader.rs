//! Damaged logs: the reader never panics, and never passes over the loss of durable data.

use std::path::Path;

use disk::{Crash, Disk, Fault, FaultDisk, FaultKind, OpKind};
use fastrand::Rng;
use kumiki_journal::{Options, RecoverError, Recovered};

use crate::support::{DIR, Found, Run, damaged, options, recover, shared};

/// A change to a disk that damages it.
type Damage<'a> = &'a dyn Fn(&FaultDisk);

/// Returns a disk with the logs of two runs, the last of which was closed cleanly or not.
fn filled(loggers: usize, seed: u64, close: bool) -> (FaultDisk, Found) {
    let disk = FaultDisk::new();
    let mut rng = Rng::with_seed(seed);
    let mut recovered = Recovered::default();
    for round in 0..2 {
        let mut run = Run::start(&disk, options(loggers), &recovered).unwrap();
        run.play(loggers, 60, round * 100, &mut rng);
        if close || round == 0 {
            run.journal.close().unwrap();
        } else {
            let off = FaultKind::PowerOff;
            disk.plan(Fault {
                on: OpKind::Change,
                nth: disk.count(OpKind::Change),
                kind: off,
            });
            drop(run);
            break;
        }
        recovered = recover(&shared(&disk)).unwrap().recovered;
    }
    let disk = disk.crash(Crash::KillProcess, 0);
    let found = recover(&shared(&disk.crash(Crash::KillProcess, 0))).unwrap();
    assert!(found.transactions.len() > 10);
    (disk, found)
}

fn refusal(disk: &FaultDisk) -> String {
    recover(&shared(disk))
        .expect_err("it is refused")
        .to_string()
}

/// After a clean close every flipped bit is refused, or does no harm: padding between blocks, or
/// the last mark, which only says that everything before it was durable.
#[test]
fn a_flipped_bit_never_loses_durable_data() {
    for loggers in [1, 2] {
        let (disk, found) = filled(loggers, 11, true);
        let (mut refused, mut harmless) = (0, 0);
        for path in disk.files() {
            let mut size = 0;
            disk.damage(&path, |bytes| size = bytes.len()).unwrap();
            // Five and eight have no common divisor: every place in a header is met.
            for at in (0..size).step_by(5) {
                let bad = damaged(&disk, &path, |bytes| bytes[at] ^= 1 << (at % 8));
                match recover(&shared(&bad)) {
                    Ok(again) => {
                        assert_eq!(again.transactions, found.transactions, "{path:?} byte {at}");
                        // Most of the file that names the newest segment is room between records.
                        harmless += u32::from(path.extension() == Some("log".as_ref()));
                    }
                    Err(RecoverError::Corrupt {
                        path: file, offset, ..
                    }) => {
                        assert_eq!(file, path);
                        assert!(
                            offset <= at as u64,
                            "byte {at} is in or behind what is named"
                        );
                        refused += 1;
                    }
                    Err(RecoverError::Newer { .. }) => refused += 1,
                    Err(error) => panic!("{path:?} byte {at}: {error}"),
                }
            }
        }
        assert!(
            refused > 9 * harmless,
            "{refused} refused, {harmless} harmless"
        );
    }
}

#[test]
fn damage_is_reported_with_file_offset_and_remedy() {
    let (disk, _) = filled(1, 12, true);
    let path = Path::new(DIR).join("log0").join("00000000.log");
    let text = refusal(&damaged(&disk, &path, |bytes| bytes[80 + 70] ^= 4));
    for part in [
        "/data/log/log0/00000000.log",
        "byte 80",
        "checksum",
        "restore",
        "backup",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = refusal(&damaged(&disk, &path, |bytes| bytes.truncate(300)));
    assert!(text.contains("00000000.log: damaged at byte"), "{text}");
}

/// However the files are changed, the reader returns an error or recovers whole transactions: never
/// a panic, never half of a transaction (which `recover` checks), never one that was not there.
/// `KUMIKI_FUZZ_ROUNDS` makes the run longer; each round has its number as seed.
#[test]
fn mutilated_logs_never_panic_the_reader() {
    let disks = [
        filled(1, 13, true),
        filled(2, 14, false),
        filled(3, 15, false),
    ];
    let (mut ok, mut refused) = (0, 0);
    let rounds = std::env::var("KUMIKI_FUZZ_ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok());
    for seed in 0..rounds.unwrap_or(3000).max(500) {
        let mut rng = Rng::with_seed(seed);
        let (disk, found) = &disks[rng.usize(0..disks.len())];
        let files = disk.files();
        let copy = disk.crash(Crash::KillProcess, 0);
        for _ in 0..rng.usize(1..3) {
            let other = &files[rng.usize(0..files.len())];
            let mut donor = Vec::new();
            copy.damage(other, |bytes| donor.clone_from(bytes)).unwrap();
            let path = &files[rng.usize(0..files.len())];
            copy.damage(path, |bytes| mutilate(bytes, &donor, &mut rng))
                .unwrap();
        }
        match recover(&shared(&copy)) {
            Ok(again) => {
                ok += 1;
                let known = |(id, one)| {
                    found.transactions.get(id) == Some(one)
                        || one.tid.epoch() > found.recovered.durable
                };
                assert!(
                    again.transactions.iter().all(known),
                    "seed {seed}: from nowhere"
                );
            }
            Err(_) => refused += 1,
        }
    }
    assert!(
        ok > 10 && refused > 100,
        "{ok} recovered, {refused} refused"
    );
}

fn mutilate(bytes: &mut Vec<u8>, donor: &[u8], rng: &mut Rng) {
    let at = rng.usize(0..=bytes.len());
    let n = rng.usize(0..200).min(bytes.len() - at);
    match rng.u8(0..8) {
        0 => bytes.truncate(at),
        1 => bytes[at..at + n].fill(0),
        2 => bytes[at..at + n]
            .iter_mut()
            .for_each(|byte| *byte = rng.u8(..)),
        3 => drop(bytes.drain(at..at + n)),
        4 => drop(bytes.splice(at..at, std::iter::repeat_n(0, n))),
        5 => {
            let from = rng.usize(0..=donor.len());
            let to = donor.len().min(from + n);
            bytes.splice(at..at, donor[from..to].iter().copied());
        }
        6 => bytes.extend_from_slice(&donor[rng.usize(0..=donor.len())..]),
        _ => bytes
            .iter_mut()
            .skip(at)
            .take(1)
            .for_each(|byte| *byte ^= 1 << rng.u8(0..8)),
    }
}

#[test]
fn missing_and_foreign_files_are_named() {
    let log = |name: &str| Path::new(DIR).join("log0").join(name);
    let (disk, _) = filled(2, 16, true);
    let cases: [(&str, Damage<'_>, &[&str]); 6] = [
        (
            "a segment in the middle",
            &|disk| disk.remove(&log("00000001.log")).unwrap(),
            &["00000001.log is missing", "there is a", "backup"],
        ),
        (
            "the first segment",
            &|disk| disk.remove(&log("00000000.log")).unwrap(),
            &["00000000.log is missing"],
        ),
        (
            "segments of another order",
            &|disk| {
                disk.rename(&log("00000001.log"), &log("x")).unwrap();
                disk.rename(&log("00000002.log"), &log("00000001.log"))
                    .unwrap();
                disk.rename(&log("x"), &log("00000002.log")).unwrap();
            },
            &["00000001.log does not belong", "segment 2 of log 0"],
        ),
        (
            "a foreign file",
            &|disk| drop(disk.create_new(&log("core")).unwrap()),
            &["log0/core does not belong", "Move it"],
        ),
        (
            "a file instead of a log",
            &|disk| drop(disk.create_new(&Path::new(DIR).join("log7")).unwrap()),
            &["log7 does not belong"],
        ),
        (
            "a log too many",
            &|disk| disk.create_dir_all(&Path::new(DIR).join("log3")).unwrap(),
            &["log2 is missing", "log3"],
        ),
    ];
    for (name, damage, parts) in cases {
        let copy = disk.crash(Crash::KillProcess, 0);
        damage(&copy);
        let text = refusal(&copy);
        for part in parts {
            assert!(text.contains(part), "{name}: {part}: {text}");
        }
    }
}

/// The newest segments of one log are gone, as if an older copy had been put back.
#[test]
fn an_older_copy_of_one_log_is_refused() {
    let (disk, _) = filled(2, 17, true);
    let in_log1 = |path: &&std::path::PathBuf| path.starts_with(Path::new(DIR).join("log1"));
    let files = disk.files();
    let newest: Vec<_> = files.iter().filter(in_log1).collect();
    disk.remove(newest.last().unwrap()).unwrap();
    let text = refusal(&disk);
    assert!(text.contains("/log1/"), "{text}");
}

/// All transactions of a log may lie in its newest segment, and no other file has a trace of them.
#[test]
fn the_newest_segment_is_missed_when_it_is_gone_or_emptied() {
    for (loggers, seed) in [(1, 21), (2, 22)] {
        let (disk, found) = filled(loggers, seed, true);
        let dir = Path::new(DIR);
        for log in 0..loggers {
            let log_dir = dir.join(format!("log{log}"));
            let files = disk.files();
            let newest = files.iter().rfind(|path| path.starts_with(&log_dir));
            let newest = newest.unwrap();
            let name = newest.file_name().unwrap().to_str().unwrap();

            let gone = disk.crash(Crash::KillProcess, 0);
            gone.remove(newest).unwrap();
            let text = refusal(&gone);
            assert!(text.contains(&format!("{name} is missing")), "{text}");
            assert!(text.contains(&format!("log{log}.newest")), "{text}");

            for damage in [
                |bytes: &mut Vec<u8>| bytes.clear(),
                |bytes: &mut Vec<u8>| bytes.fill(0),
            ] {
                let text = refusal(&damaged(&disk, newest, damage));
                assert!(text.contains(name) && text.contains("not valid"), "{text}");
            }

            // The file that names the segment is no data: without it all is found, and later writes
            // are protected again.
            let unnamed = disk.crash(Crash::KillProcess, 0);
            unnamed
                .remove(&dir.join(format!("log{log}.newest")))
                .unwrap();
            let again = recover(&shared(&unnamed)).unwrap();
            assert_eq!(again.transactions, found.transactions);
            let mut run = Run::start(&unnamed, options(loggers), &again.recovered).unwrap();
            run.play(loggers, 20, 900, &mut Rng::with_seed(seed));
            run.journal.close().unwrap();
            let files = unnamed.files();
            let newest = files.iter().rfind(|path| path.starts_with(&log_dir));
            unnamed.remove(newest.unwrap()).unwrap();
            assert!(refusal(&unnamed).contains("is missing"));
        }
    }
}

/// The segment is the only one of a store that was never started again.
#[test]
fn the_first_segment_is_missed_when_the_log_is_empty() {
    let disk = FaultDisk::new();
    let mut run = Run::start(&disk, options(1), &Recovered::default()).unwrap();
    run.play(1, 5, 0, &mut Rng::with_seed(23));
    run.journal.close().unwrap();
    let segments: Vec<_> = disk
        .files()
        .into_iter()
        .filter(|path| path.extension() == Some("log".as_ref()))
        .collect();
    for path in segments {
        disk.remove(&path).unwrap();
    }
    assert!(refusal(&disk).contains(".log is missing"));
}

#[test]
fn other_things_beside_the_logs_do_not_matter() {
    let (disk, found) = filled(1, 18, true);
    disk.create_dir_all(&Path::new(DIR).join("checkpoint7"))
        .unwrap();
    disk.create_dir_all(&Path::new(DIR).join("log0").join("lost+found"))
        .unwrap();
    drop(disk.create_new(&Path::new(DIR).join("LOCK")).unwrap());
    assert_eq!(
        recover(&shared(&disk)).unwrap().transactions,
        found.transactions
    );
}

#[test]
fn a_newer_format_is_refused() {
    let (disk, _) = filled(1, 19, true);
    let path = Path::new(DIR).join("log0").join("00000000.log");
    let text = refusal(&damaged(&disk, &path, |bytes| bytes[8] = 7));
    assert!(
        text.contains("format version 7") && text.contains("newer"),
        "{text}"
    );
}

/// A torn tail is cut once, and reported.
#[test]
fn a_torn_tail_is_cut_and_said() {
    let disk = FaultDisk::new();
    let mut run = Run::start(
        &disk,
        Options {
            preallocate: 8192,
            ..options(1)
        },
        &Recovered::default(),
    )
    .unwrap();
    run.play(1, 30, 0, &mut Rng::with_seed(20));
    run.journal.close().unwrap();
    let path = Path::new(DIR).join("log0").join("00000000.log");
    disk.damage(&path, |bytes| {
        let end = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
        bytes.resize(end + 20, 0);
        bytes[end + 8..].fill(7);
    })
    .unwrap();
    let first = recover(&shared(&disk)).unwrap();
    let [cut] = &first.recovered.cuts[..] else {
        panic!("{:?}", first.recovered.cuts)
    };
    assert_eq!(cut.file, path);
    assert!(cut.to_string().contains("cut") && cut.to_string().contains(&cut.offset.to_string()));
    let mut size = 0;
    disk.damage(&path, |bytes| size = bytes.len() as u64)
        .unwrap();
    assert_eq!(size, cut.offset, "it is cut on disk");
    let second = recover(&shared(&disk)).unwrap();
    assert_eq!(second.recovered.cuts, []);
    assert_eq!(second.transactions, first.transactions);
}
