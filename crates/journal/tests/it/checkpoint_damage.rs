//! Recoveries from checkpoints that are damaged, incomplete, or do not fit their logs; and crashes
//! of a recovery that reads one.

use std::path::{Path, PathBuf};

use disk::{Crash, Disk, Fault, FaultDisk, FaultKind, OpKind};
use fastrand::Rng;
use kumiki_journal::{RecoverError, Recovered};

use crate::support::small::{Did, Left, Store, judge, options, play, recover};
use crate::support::{DIR, damaged};

/// Returns a disk with a checkpoint and logs behind it, and their contents.
fn filled(loggers: usize, seed: u64) -> (FaultDisk, Left) {
    let disk = FaultDisk::new();
    let left = play(
        &disk,
        &options(loggers),
        &Recovered::default(),
        Vec::new(),
        seed,
    );
    assert_eq!(left.made, 4);
    (disk.crash(Crash::KillProcess, 0), left)
}

fn checkpoint_files(disk: &FaultDisk) -> Vec<PathBuf> {
    let mut files = disk.files();
    files.retain(|path| path.starts_with(Path::new(DIR).join("checkpoint")));
    files
}

fn manifest(disk: &FaultDisk) -> PathBuf {
    let mut files = checkpoint_files(disk);
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "manifest")
    });
    files.pop().expect("a checkpoint was published")
}

fn refusal(disk: &FaultDisk) -> String {
    recover(disk).expect_err("it is refused").to_string()
}

/// The segments before the checkpoint are gone, so that nothing can replace it: every flipped bit
/// is refused with file and place, or does no harm (padding).
#[test]
fn a_flipped_bit_in_the_only_checkpoint_is_refused() {
    let (disk, left) = filled(2, 3);
    let (_, state) = recover(&disk.crash(Crash::KillProcess, 0)).unwrap();
    judge(
        &recover(&disk.crash(Crash::KillProcess, 0)),
        &left.history,
        left.acknowledged,
    )
    .unwrap();
    let (mut refused, mut harmless) = (0, 0);
    for path in checkpoint_files(&disk) {
        let mut size = 0;
        disk.damage(&path, |bytes| size = bytes.len()).unwrap();
        for at in 0..size {
            let bad = damaged(&disk, &path, |bytes| bytes[at] ^= 1 << (at % 8));
            match recover(&bad) {
                Ok((_, again)) => {
                    assert_eq!(again, state, "{path:?} byte {at}");
                    harmless += 1;
                }
                Err(RecoverError::Corrupt { path: file, .. }) => {
                    assert_eq!(file, path);
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

#[test]
fn refusals_name_the_file_and_the_remedy() {
    let (disk, _) = filled(1, 4);
    let manifest = manifest(&disk);
    let part = checkpoint_files(&disk).remove(0);
    let name = |path: &Path| path.display().to_string();
    let text = refusal(&damaged(&disk, &part, |bytes| bytes.truncate(30)));
    for word in [&name(&part), "damaged at byte 30", "backup"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let text = refusal(&damaged(&disk, &manifest, |bytes| bytes[8] = 5));
    for word in [&name(&manifest), "format version 5", "newer"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let copy = disk.crash(Crash::KillProcess, 0);
    copy.remove(&part).unwrap();
    let text = refusal(&copy);
    for word in [&name(&part), "is missing", "manifest", "backup"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

/// Without the checkpoint the logs do not begin at their beginning; without a segment that it
/// needs, the log has a gap; with logs of another place they do not fit.
#[test]
fn a_checkpoint_and_its_logs_belong_together() {
    let (disk, _) = filled(2, 5);
    let copy = disk.crash(Crash::KillProcess, 0);
    checkpoint_files(&copy)
        .iter()
        .for_each(|path| copy.remove(path).unwrap());
    let text = refusal(&copy);
    assert!(text.contains("00000000.log is missing"), "{text}");

    let in_log = |log: &str| -> Vec<PathBuf> {
        let dir = Path::new(DIR).join(log);
        let mut files = disk.files();
        files.retain(|path| path.starts_with(&dir));
        files
    };
    let first = &in_log("log1")[0];
    let copy = disk.crash(Crash::KillProcess, 0);
    copy.remove(first).unwrap();
    let text = refusal(&copy);
    assert!(
        text.contains(&format!("{} is missing", first.display())),
        "{text}"
    );

    let copy = disk.crash(Crash::KillProcess, 0);
    in_log("log1")
        .iter()
        .for_each(|path| copy.remove(path).unwrap());
    let text = refusal(&copy);
    assert!(
        text.contains("is missing") && text.contains(".manifest needs it"),
        "{text}"
    );

    // The segment exists by name only, as if it came from another store.
    let copy = damaged(&disk, first, |bytes| bytes.fill(0));
    let text = refusal(&copy);
    assert!(text.contains(&first.display().to_string()), "{text}");
}

/// As long as the logs hold everything, a damaged checkpoint is passed over, with a warning.
#[test]
fn a_damaged_checkpoint_is_passed_over_if_the_logs_hold_everything() {
    let disk = FaultDisk::new();
    let mut store = Store::new(&disk, options(2));
    let mut rng = Rng::with_seed(8);
    for round in 0..20 {
        store.log(round % 4, Did::Put(round as u8 % 5, round as u16, 0));
        store.log((round + 1) % 4, Did::Delete((round + 2) as u8 % 5));
    }
    store.keep_segments(&mut rng);
    assert_eq!(store.segments(0)[0], "00000000.log");
    store.log(0, Did::Put(9, 9, 0));
    store.settle(&mut rng);
    let history = store.history.clone();
    let acknowledged = store.journal.durable();
    let whole = recover(&disk.crash(Crash::KillProcess, 0));
    judge(&whole, &history, acknowledged).unwrap();
    assert!(whole.unwrap().0.checkpoint.is_some());
    for path in checkpoint_files(&disk) {
        let mut size = 0;
        disk.damage(&path, |bytes| size = bytes.len()).unwrap();
        for at in [0, 9, 20, 30, 50, size / 2] {
            let bad = damaged(&disk, &path, |bytes| bytes[at] ^= 4);
            // Bits of the version may say that it is newer, which is no damage.
            if refused_as_newer(&bad) {
                continue;
            }
            let found = recover(&bad);
            let (recovered, _) = judge(&found, &history, acknowledged).unwrap();
            assert_eq!(recovered.checkpoint, None, "{path:?} byte {at}");
            let [warning] = &recovered.warnings[..] else {
                panic!("{:?}", recovered.warnings)
            };
            assert!(warning.contains(&path.display().to_string()), "{warning}");
            // The checkpoint stays as it is, and so does the recovered state.
            judge(&recover(&bad), &history, acknowledged).unwrap();
        }
    }
}

fn refused_as_newer(disk: &FaultDisk) -> bool {
    matches!(
        recover(&disk.crash(Crash::KillProcess, 0)),
        Err(RecoverError::Newer { .. })
    )
}

/// A recovery that fails or dies at any of its operations leaves the files that the next one needs.
#[test]
fn a_recovery_from_a_checkpoint_may_die() {
    for (loggers, crash, seed) in [(1, Crash::KeepSectors, 3), (2, Crash::KeepPrefix, 4)] {
        let disk = FaultDisk::new();
        let left = play(
            &disk,
            &options(loggers),
            &Recovered::default(),
            Vec::new(),
            seed,
        );
        let disk = disk.crash(crash, seed);
        // Files of an unfinished checkpoint, and a segment that is not needed.
        let litter = Path::new(DIR).join("checkpoint");
        for name in [
            "00000000000000009999-000.part",
            "00000000000000009999.manifest.new",
        ] {
            drop(disk.create_new(&litter.join(name)).unwrap());
        }
        let probe = disk.crash(Crash::KillProcess, 0);
        let found = recover(&probe);
        judge(&found, &left.history, left.acknowledged).unwrap();
        let litter = |disk: &FaultDisk| {
            let files = checkpoint_files(disk);
            files
                .iter()
                .any(|path| path.to_string_lossy().contains("9999"))
        };
        assert!(!litter(&probe), "unfinished checkpoints go away");
        let counts = [
            (OpKind::Change, probe.count(OpKind::Change)),
            (OpKind::Read, probe.count(OpKind::Read)),
        ];
        for (on, count) in counts {
            assert!(count > 3, "recovery has operations to fail");
            for nth in 0..count {
                for kind in [FaultKind::PowerOff, FaultKind::Io] {
                    let disk = disk.crash(Crash::KillProcess, 0);
                    disk.plan(Fault { on, nth, kind });
                    recover(&disk).expect_err("the failure is reported");
                    let again = recover(&disk.crash(crash, nth));
                    judge(&again, &left.history, left.acknowledged).unwrap();
                }
            }
        }
    }
}

/// Copies a directory as `cp -r` does: each folder is listed when its turn comes, and a file that
/// is gone when it is to be copied is an error. Returns `true` if there was no error.
fn copy(store: &mut Store, to: &FaultDisk, logs: usize, rng: &mut Rng) -> bool {
    let mut dirs: Vec<String> = (0..logs).map(|log| format!("log{log}")).collect();
    dirs.push("checkpoint".to_owned());
    rng.shuffle(&mut dirs);
    for dir in dirs {
        let dir = Path::new(DIR).join(dir);
        to.create_dir_all(&dir).unwrap();
        let mut listed = store.disk.files();
        listed.retain(|path| path.starts_with(&dir));
        for path in listed {
            if rng.bool() {
                store.play_some(rng);
            }
            let mut content = Vec::new();
            let read = store.disk.damage(&path, |bytes| content.clone_from(bytes));
            if read.is_err() {
                return false;
            }
            drop(to.create_new(&path).unwrap());
            to.damage(&path, |bytes| *bytes = content).unwrap();
        }
    }
    true
}

/// A copy that is made while the store runs fails, or is refused, or is a state that the store was
/// in after the copy began.
#[test]
fn a_copy_of_a_running_store_is_refused_or_right() {
    let (mut failed, mut refused, mut right) = (0, 0, 0);
    for seed in 0..400 {
        let mut rng = Rng::with_seed(seed);
        let disk = FaultDisk::new();
        let logs = 1 + seed as usize % 3;
        let mut store = Store::new(&disk, options(logs));
        store.play_some(&mut rng);
        let from = store.journal.durable();
        let to = FaultDisk::new();
        if !copy(&mut store, &to, logs, &mut rng) {
            failed += 1;
            continue;
        }
        match recover(&to) {
            Ok(found) => {
                let judged = judge(&Ok(found), &store.history, from);
                judged.unwrap_or_else(|error| panic!("seed {seed}, {logs} logs: {error}"));
                right += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(
        failed > 10 && refused > 10 && right > 10,
        "{failed} failed, {refused} refused, {right} right"
    );
}
