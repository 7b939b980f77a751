//! Damaged backups: each is refused, with the place of the damage.

use std::fs;
use std::path::{Path, PathBuf};

use kumiki_backup::{CreationOptions, RestorePoint, verify};

use crate::support::{KEY, Place};

/// Returns all files of the backups.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(files(&path)),
            path => found.push(path),
        }
    }
    found.sort();
    found
}

/// Returns what verifying and restoring say, if they refuse.
fn refusals(place: &Place) -> (Option<String>, Option<String>) {
    let verified = place
        .open()
        .and_then(|repository| verify(&repository, None, &mut |_, _| false));
    let verified = match verified {
        Err(error) => Some(error.to_string()),
        Ok(found) => found.damages.first().map(ToString::to_string),
    };
    let restored = place.restore(&RestorePoint::Newest, "restored");
    let restored = restored.err().map(|error| error.to_string());
    if restored.is_none() {
        fs::remove_dir_all(place.path("restored")).unwrap();
    }
    (verified, restored)
}

#[test]
fn a_change_of_any_file_is_refused_with_its_place() {
    for key in [None, Some(KEY)] {
        let mut place = Place::new();
        place.key = key;
        let mut node = place.node(0);
        node.fill("a", 10);
        node.db.checkpoint().unwrap();
        let options = CreationOptions {
            piece: 5000,
            ..CreationOptions::default()
        };
        let db = node.db.clone();
        let between = |number: usize| {
            let value = vec![b'x'; 3000 * number];
            let commit = db.transact(|txn| txn.put(b"between", &value));
            commit.unwrap().wait_durable().unwrap();
        };
        place
            .back_up_with(&mut [&mut node], options, 3, between)
            .unwrap();
        assert_eq!(refusals(&place), (None, None));
        let all = files(&place.path("backups"));
        assert!(all.len() > 8, "{all:?}");
        for path in all {
            let sound = fs::read(&path).unwrap();
            let shown = path.display().to_string();
            let expect = |what: &str, words: &[&str]| {
                let (verified, restored) = refusals(&place);
                for refused in [verified, restored] {
                    let refused = refused.unwrap_or_else(|| panic!("{what} of {shown}"));
                    let says_all = words.iter().all(|word| refused.contains(word));
                    assert!(refused.contains(&shown) && says_all, "{what}: {refused}");
                }
                assert!(!place.path("restored").exists());
            };
            for at in [0, 9, 30, sound.len() / 2, sound.len() - 1] {
                let mut bad = sound.clone();
                bad[at] ^= 4;
                fs::write(&path, bad).unwrap();
                expect("a flipped bit", &["byte"]);
            }
            for length in [0, 20, sound.len() / 2, sound.len() - 1] {
                fs::write(&path, &sound[..length]).unwrap();
                expect("a missing end", &["byte"]);
            }
            let mut newer = sound.clone();
            newer[8] = 2;
            fs::write(&path, newer).unwrap();
            expect("another version", &["format version 2", "up to 1"]);
            fs::remove_file(&path).unwrap();
            let (verified, restored) = refusals(&place);
            let name = path.file_name().unwrap().to_str().unwrap();
            let is_last_manifest = name == "backup-000002";
            // Without the description there are no backups; without the last manifest, one backup fewer.
            assert!(
                is_last_manifest || (verified.is_some() && restored.is_some()),
                "{shown}"
            );
            fs::write(&path, &sound).unwrap();
        }
        assert_eq!(refusals(&place), (None, None));
    }
}

#[test]
fn a_file_with_the_name_of_another_one_is_refused() {
    let mut place = Place::new();
    let mut node = place.node(0);
    node.fill("a", 10);
    let options = CreationOptions {
        piece: 1000,
        ..CreationOptions::default()
    };
    place
        .back_up_with(&mut [&mut node], options, 1, |_| ())
        .unwrap();
    let all = files(&place.path("backups"));
    let mut pieces = all
        .iter()
        .filter(|path| path.to_str().unwrap().ends_with("000"));
    let (one, other) = (pieces.next().unwrap(), pieces.next().unwrap());
    fs::copy(one, other).unwrap();
    let (verified, restored) = refusals(&place);
    for refused in [verified.unwrap(), restored.unwrap()] {
        assert!(refused.contains("another file"), "{refused}");
    }
}
