//! An entry point for fuzzing the reader of system records. It panics when a guarantee is broken.

use base::participant::State;

use crate::system_record::{self, SystemRecord};

/// Reads `bytes` as the value of a system record.
///
/// # Panics
/// Panics if the reader panics, or accepts bytes that the writer would not write.
pub fn fuzz_system_record(bytes: &[u8]) {
    let Ok(entry) = system_record::decode(bytes) else {
        return;
    };
    assert_eq!(entry.encode(), bytes, "there is one way to say a thing");
    let state = system_record::state(bytes);
    let same = match entry {
        SystemRecord::Prepared { note, .. } | SystemRecord::Pending { note, .. } => {
            state == Ok(State::Prepared(note.to_vec()))
        }
        SystemRecord::Committed { note } => state == Ok(State::Committed(note.to_vec())),
        SystemRecord::Refused => state == Ok(State::Refused),
    };
    assert!(same, "the state says something else than the whole");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The corpus is the output of the writer; it is written again when the format changes.
    #[test]
    fn the_corpus_is_of_this_format() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/system");
        let names = ["prepared", "empty", "committed", "refused", "unheld"];
        for (name, entry) in names.iter().zip(system_record::tests::examples()) {
            let bytes = entry.encode();
            fuzz_system_record(&bytes);
            let path = corpus.join(name);
            let written = std::fs::read(&path).unwrap_or_default();
            assert!(written == bytes, "{} is out of date", path.display());
        }
    }

    #[test]
    fn damaged_values_are_refused_or_are_values() {
        let mut random = fastrand::Rng::with_seed(7);
        for mut bytes in system_record::tests::examples().map(|entry| entry.encode()) {
            for _ in 0..2000 {
                let at = random.usize(..bytes.len());
                let old = std::mem::replace(&mut bytes[at], random.u8(..));
                fuzz_system_record(&bytes);
                if random.bool() {
                    bytes[at] = old;
                }
            }
        }
    }
}
