//! Places that hold something else, and keys that are not the right ones.

use std::fs;

use kumiki_backup::{CreationOptions, RestorationError, RestorePoint};

use crate::support::{KEY, Place};

#[test]
fn only_the_right_key_opens_encrypted_backups() {
    let other = "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    let mut place = Place::new();
    place.key = Some(KEY);
    let mut node = place.node(0);
    node.put("secret", "very-secret-value");
    place.back_up(&mut node);
    let mut expect = |key, words: &[&str]| {
        place.key = key;
        let opened = place.open().err().expect("refused").to_string();
        let made = place.back_up_with(&mut [&mut node], CreationOptions::default(), 1, |_| ());
        let made = made.expect_err("refused").to_string();
        for said in [opened, made] {
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
    };
    expect(None, &["are encrypted", "--encryption-key-file"]);
    expect(Some(other), &["another key", "fingerprint"]);
    let mut plain = Place::new();
    plain.back_up(&mut plain.node(0));
    plain.key = Some(KEY);
    let said = plain.open().err().expect("refused").to_string();
    assert!(said.contains("are not encrypted"), "{said}");
}

#[test]
fn a_place_has_the_backups_of_one_node_or_cluster() {
    let mut place = Place::new();
    let mut one = place.node(0);
    place.back_up(&mut one);
    let other_place = Place::new();
    let mut other = other_place.node(0);
    let mut two = other_place.node(2);
    let refused = |place: &mut Place, nodes: &mut [&mut crate::support::LocalNode]| {
        let made = place.back_up_with(nodes, CreationOptions::default(), 1, |_| ());
        made.expect_err("refused").to_string()
    };
    let said = refused(&mut place, &mut [&mut other]);
    assert!(
        said.contains("other data") && said.contains("the id"),
        "{said}"
    );
    let said = refused(&mut place, &mut [&mut one, &mut two]);
    assert!(said.contains("no node 2"), "{said}");
    let said = refused(&mut place, &mut [&mut two]);
    assert!(said.contains("a node 0"), "{said}");
    // A directory with other files is not used.
    let mut foreign = Place::new();
    fs::create_dir(foreign.path("backups")).unwrap();
    fs::write(foreign.path("backups").join("photo.jpg"), "?").unwrap();
    let said = refused(&mut foreign, &mut [&mut one]);
    assert!(said.contains("holds files, and no backups"), "{said}");
    let said = foreign.open().err().expect("refused").to_string();
    assert!(said.contains("holds no backups"), "{said}");
}

#[test]
fn a_restore_needs_a_directory_that_does_not_exist() {
    let mut place = Place::new();
    place.back_up(&mut place.node(0));
    fs::create_dir(place.path("there")).unwrap();
    for name in ["there", "data0"] {
        let refused = place.restore(&RestorePoint::Newest, name);
        assert!(
            matches!(refused, Err(RestorationError::Exists(_))),
            "{name}"
        );
    }
    let missing = RestorePoint::Backup("20200101T000000000Z.0".to_owned());
    let said = place.restore(&missing, "new").unwrap_err().to_string();
    assert!(said.contains("no backup 20200101T000000000Z.0"), "{said}");
    // Nothing is left of what failed.
    let names = fs::read_dir(place.dir.path()).unwrap().flatten();
    let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    assert!(
        names
            .iter()
            .all(|name| !name.to_string_lossy().contains("restoring"))
    );
}
