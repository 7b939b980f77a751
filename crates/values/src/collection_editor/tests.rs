use super::*;

fn score(number: u64) -> [u8; SCORE] {
    number.to_be_bytes()
}

/// Random changes; their log makes the same of another collection, which was a block before.
#[test]
fn a_log_repeats_the_changes() {
    let mut random = fastrand::Rng::with_seed(5);
    for kind in [Kind::Hash, Kind::Set, Kind::List, Kind::SortedSet] {
        let mut block = Vec::new();
        for _ in 0..300 {
            let stamp = VersionStamp(1);
            let mut editor = CollectionEditor::of_packed(kind, &block, stamp);
            for _ in 0..random.usize(1..9) {
                let element = random.u32(..200).to_string().into_bytes();
                let length = editor.view().len();
                let from = random.usize(..=length);
                match (random.u8(..4), kind) {
                    (0, Kind::List | Kind::SortedSet) => {
                        editor.remove_range(from..length.min(from + random.usize(..4)));
                    }
                    (1, Kind::List) if from < length => editor.replace(from, &element),
                    (_, Kind::List) => editor.insert(from, &element),
                    (1, _) => drop(editor.remove(&element)),
                    (_, Kind::SortedSet) => {
                        editor.put(&element, &score(random.u64(..9)));
                    }
                    (_, Kind::Set) => drop(editor.put(&element, b"")),
                    _ => drop(editor.put_field(HashField {
                        name: &element,
                        value: &[random.u8(..); 9],
                        deadline: random.bool().then(|| random.u64(1..)),
                    })),
                }
            }
            let now = editor.view().to_packed(kind);
            let mut other = CollectionEditor::of_packed(kind, &block, stamp);
            assert!(other.apply(&editor.take_log()));
            assert_eq!(other.view().to_packed(kind), now);
            assert_eq!(other.view().len(), PackedView::new(&now).len());
            block = now;
        }
    }
}

#[test]
fn malformed_logs_are_refused() {
    for (kind, log) in [
        (Kind::List, &[PUT, 1, b'a', 0][..]),
        (Kind::Set, &[INSERT, 0, 1, b'a']),
        (Kind::Set, &[REMOVE_RANGE, 0, 0]),
        (Kind::List, &[INSERT, 1, 1, b'a']),
        (Kind::List, &[REPLACE, 0, 1, b'a']),
        (Kind::List, &[REMOVE_RANGE, 0, 1]),
        (Kind::SortedSet, &[PUT, 1, b'a', 1, 0]),
        (Kind::Hash, &[PUT, 2, b'a']),
        (Kind::Hash, &[9]),
        (
            Kind::Hash,
            &[PUT_EXPIRING, 7, 1, 2, 3, 4, 5, 6, 7, 1, b'a', 0],
        ),
        (
            Kind::Hash,
            &[PUT_EXPIRING, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, b'a'],
        ),
        (
            Kind::Set,
            &[PUT_EXPIRING, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, b'a', 0],
        ),
        // Tags of streams are theirs alone, and their changes must fit.
        (Kind::Hash, &[8, 1, 0]),
        (Kind::Stream, &[PUT, 1, b'a', 0]),
        (Kind::Stream, &[8, 1, 0]),
        (Kind::Stream, &[9, 1]),
        (Kind::Stream, &[16, 1, b'g', 1, 0]),
        (Kind::Hash, &[PUT, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
    ] {
        let mut editor = CollectionEditor::of_packed(kind, b"", VersionStamp(1));
        assert!(!editor.apply(log), "{kind:?} {log:?}");
    }
}
