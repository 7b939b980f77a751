//! Random changes of trees and of models of them.

use std::collections::BTreeMap;
use std::panic;

use base::planted::{self, Bug};

use super::super::{NodeLimits, TreeBuilder, TreeEditor, TreeView};
use super::{ALL_LIMITS, KeyChain, PositionChain, SMALL};

type KeyModel = BTreeMap<Vec<u8>, Vec<u8>>;

fn bytes(rng: &mut fastrand::Rng, longest: usize) -> Vec<u8> {
    let len = match rng.u8(..) {
        0 => longest * 20,
        1..20 => 0,
        _ => rng.usize(..longest),
    };
    vec![rng.u8(b'a'..b'd'); len]
}

/// Returns a key; some differ behind a long prefix only.
fn key(rng: &mut fastrand::Rng) -> Vec<u8> {
    let number = rng.u32(..400).to_string().into_bytes();
    match rng.u8(..8) {
        0 => bytes(rng, 12),
        1 => [&[b'p'; 300][..], &number].concat(),
        _ => number,
    }
}

fn check_keys(chain: &KeyChain, index: usize, model: &KeyModel, rng: &mut fastrand::Rng) {
    let tree = chain.view(index);
    assert_eq!(tree.len(), model.len());
    let expected = || model.iter().map(|(key, value)| (&key[..], &value[..]));
    assert!(tree.iter().eq(expected()));
    let mut end = tree.cursor_at(tree.len());
    assert!(std::iter::from_fn(|| end.prev()).eq(expected().rev()));
    for _ in 0..8 {
        let key = key(rng);
        assert_eq!(tree.get(&key), model.get(&key).map(Vec::as_slice));
        let rank = model.range(..key.clone()).count();
        let expected_rank = if model.contains_key(&key) {
            Ok(rank)
        } else {
            Err(rank)
        };
        assert_eq!(tree.rank(&key), expected_rank);
        assert_eq!(tree.nth(rank), expected().nth(rank));
        let mut cursor = tree.cursor_from(&key);
        assert_eq!(cursor.clone().next(), expected().nth(rank));
        assert_eq!(
            cursor.prev(),
            rank.checked_sub(1).and_then(|n| expected().nth(n))
        );
        assert_eq!(cursor.next(), expected().nth(rank.saturating_sub(1)));
    }
}

/// Returns the positions of a range, which is short most of the time.
fn range(rng: &mut fastrand::Rng, len: usize) -> std::ops::Range<usize> {
    let start = rng.usize(..=len);
    let longest = if rng.u8(..4) == 0 { len } else { 5 };
    start..rng.usize(start..=len.min(start + longest))
}

fn change_keys(
    editor: &mut TreeEditor<super::KeyOrder>,
    model: &mut KeyModel,
    rng: &mut fastrand::Rng,
) {
    match rng.u8(..64) {
        0 => {
            let removed = range(rng, model.len());
            let keys: Vec<_> = model
                .keys()
                .skip(removed.start)
                .take(removed.len())
                .cloned()
                .collect();
            editor.remove_range(removed);
            keys.iter().for_each(|key| drop(model.remove(key)));
        }
        1..24 => {
            let key = key(rng);
            assert_eq!(editor.remove(&key), model.remove(&key).is_some());
        }
        _ => {
            let (key, value) = (key(rng), bytes(rng, 40));
            assert_eq!(editor.put(&key, &value), !model.contains_key(&key));
            model.insert(key, value);
        }
    }
}

fn keys_with_versions(limits: NodeLimits, seed: u64) {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let mut chain = KeyChain::new(limits);
    let mut models = vec![KeyModel::new()];
    for round in 0..300 {
        let mut model = models.last().expect("one for each version").clone();
        let changes = if rng.bool() { 1 } else { rng.usize(..100) };
        match rng.u8(..40) {
            0 => {
                chain.delete();
                model.clear();
            }
            1 => chain.commit(|editor| {
                editor.clear();
                model.clear();
                (0..changes).for_each(|_| change_keys(editor, &mut model, rng));
            }),
            2..8 => {
                let mut aborted = model.clone();
                chain.abort(|editor| {
                    (0..changes).for_each(|_| change_keys(editor, &mut aborted, rng));
                });
                continue;
            }
            _ => chain.commit(|editor| {
                (0..changes).for_each(|_| change_keys(editor, &mut model, rng));
            }),
        }
        models.push(model);
        while chain.len() > 1 && rng.u8(..8) > 2 || chain.len() > 8 {
            let index = rng.usize(..chain.len() - 1);
            chain.release(index, rng.usize(1..20));
            models.remove(index);
        }
        chain.check();
        if round % 10 == 0 {
            for (index, model) in models.iter().enumerate() {
                check_keys(&chain, index, model, rng);
            }
        }
    }
}

#[test]
fn trees_of_keys_are_as_maps_in_all_versions() {
    for limits in ALL_LIMITS {
        (0..4).for_each(|seed| keys_with_versions(limits, seed));
    }
}

fn change_positions(
    editor: &mut TreeEditor<super::PositionOrder>,
    model: &mut Vec<Vec<u8>>,
    rng: &mut fastrand::Rng,
) {
    let value = bytes(rng, 30);
    match rng.u8(..64) {
        0..3 => {
            let removed = range(rng, model.len());
            editor.remove_range(removed.clone());
            model.drain(removed);
        }
        3..16 if !model.is_empty() => {
            let position = rng.usize(..model.len());
            editor.replace(position, &value);
            model[position] = value;
        }
        16..24 => {
            editor.insert(model.len(), &value);
            model.push(value);
        }
        24..32 => {
            editor.insert(0, &value);
            model.insert(0, value);
        }
        _ => {
            let position = rng.usize(..=model.len());
            editor.insert(position, &value);
            model.insert(position, value);
        }
    }
}

fn positions_with_versions(limits: NodeLimits, seed: u64) {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let mut chain = PositionChain::new(limits);
    let mut models: Vec<Vec<Vec<u8>>> = vec![Vec::new()];
    for _ in 0..200 {
        let mut model = models.last().expect("one for each version").clone();
        let changes = if rng.bool() { 1 } else { rng.usize(..100) };
        let mut aborted = model.clone();
        chain.abort(|editor| {
            (0..changes).for_each(|_| change_positions(editor, &mut aborted, rng));
        });
        chain.commit(|editor| {
            (0..changes).for_each(|_| change_positions(editor, &mut model, rng));
        });
        models.push(model);
        while chain.len() > 1 && rng.u8(..8) > 2 || chain.len() > 8 {
            let index = rng.usize(..chain.len() - 1);
            chain.release(index, rng.usize(1..20));
            models.remove(index);
        }
        chain.check();
        for (index, model) in models.iter().enumerate() {
            let tree = chain.view(index);
            assert!(tree.iter().map(|(_, value)| value).eq(model));
            let position = rng.usize(..=model.len());
            let value = tree.nth(position).map(|(_, value)| value);
            assert_eq!(value, model.get(position).map(Vec::as_slice));
            let mut cursor = tree.cursor_at(position);
            let before = std::iter::from_fn(|| cursor.prev()).map(|(_, value)| value);
            assert!(before.eq(model[..position].iter().rev()));
        }
    }
}

#[test]
fn trees_of_positions_are_as_vectors_in_all_versions() {
    for limits in ALL_LIMITS {
        (0..4).for_each(|seed| positions_with_versions(limits, seed));
    }
}

#[test]
fn planted_bugs_of_versions_are_found() {
    let run = || {
        keys_with_versions(SMALL, 5);
        positions_with_versions(SMALL, 5);
    };
    if [Bug::SharedNode, Bug::EarlyFreeing]
        .into_iter()
        .any(planted::is)
    {
        panic::catch_unwind(run).expect_err("there is a bug to find");
    } else {
        run();
    }
}

#[test]
fn built_trees_are_as_put_ones() {
    for limits in ALL_LIMITS {
        for count in [0, 1, 2, 5, 40, 333, 5000] {
            let mut chain = KeyChain::new(limits);
            let mut builder = TreeBuilder::<super::KeyOrder>::new(chain.next_stamp(), limits);
            let mut model = KeyModel::new();
            for number in 0..count {
                let key = format!("{number:08}").into_bytes();
                builder.push(&key, b"value");
                model.insert(key, b"value".to_vec());
            }
            chain.publish(builder.finish());
            chain.check();
            check_keys(&chain, 1, &model, &mut fastrand::Rng::with_seed(1));
        }
    }
}

#[test]
fn a_dropped_builder_frees_its_nodes() {
    let chain = PositionChain::new(SMALL);
    let mut builder = TreeBuilder::<super::PositionOrder>::new(chain.next_stamp(), SMALL);
    (0..1000).for_each(|_| builder.push(b"some value"));
    drop(builder);
    chain.check();
}

#[test]
fn a_version_is_read_while_later_ones_are_made() {
    let rng = &mut fastrand::Rng::with_seed(1);
    let mut chain = KeyChain::new(SMALL);
    chain.commit(|editor| {
        (0..500_u32).for_each(|number| assert!(editor.put(&number.to_be_bytes(), b"read")));
    });
    let read = |tree: TreeView<'_, super::KeyOrder>| {
        for _ in 0..100 {
            for (number, (key, value)) in tree.iter().enumerate() {
                assert_eq!(
                    (key, value),
                    (&(number as u32).to_be_bytes()[..], &b"read"[..])
                );
                assert_eq!(tree.rank(key), Ok(number));
            }
            assert_eq!(tree.len(), 500);
        }
    };
    chain.read_meanwhile(read, |chain| {
        for _ in 0..2000 {
            let key = rng.u32(..600).to_be_bytes();
            chain.commit(|editor| {
                if !editor.remove(&key) {
                    editor.put(&key, b"changed");
                }
            });
            if chain.len() > 3 {
                chain.release(2, 10);
            }
        }
    });
    chain.check();
}
