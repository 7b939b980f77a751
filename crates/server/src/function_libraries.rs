//! The libraries of functions, as a partition stores them.
//!
//! Behind their generation, which module `libraries` of the engine describes, the stored bytes are:
//!
//! | field | is |
//! |---|---|
//! | 1 byte | the version of this format: 1 |
//! | count | the number of libraries; of each |
//! | bytes | its source |
//! | count | the number of its functions; of each |
//! | bytes | its name |
//! | 1 byte | 1 if a description follows, else 0 |
//! | bytes | the description, if there is one |
//! | count | the number of its flags; of each |
//! | bytes | the flag, as scripts name it |
//!
//! Counts and bytes are those of `base::codec`. The functions are stored with their library, so that a server
//! which reads the record runs no code.
//!
//! Invariants:
//! 1. Names of functions are unique among all libraries, in whichever case they are written; names of
//!    libraries are unique as they are written.
//! 2. No input makes the decoder panic, or take more memory than a multiple of the input.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::codec::{Malformed, Reader, put_bytes, put_count};
use hashbrown::HashMap;
use parking_lot::RwLock;
use scripts::{Library, LibraryFunction, ScriptFlags};

/// The version of the format.
const VERSION: u8 = 1;

/// See the module's description.
#[derive(Clone, Default)]
pub(crate) struct FunctionLibraries {
    libraries: BTreeMap<String, Arc<Library>>,
    /// By its name in lower case, the library of each function, and its place there.
    functions: HashMap<String, (Arc<Library>, usize)>,
}

/// Libraries, and the generation of them that a partition has.
#[derive(Clone, Default)]
pub(crate) struct StoredLibraries {
    pub(crate) generation: u64,
    pub(crate) libraries: Arc<FunctionLibraries>,
}

/// The newest libraries that a server has read from a partition.
#[derive(Default)]
pub(crate) struct LibraryCache(RwLock<Option<StoredLibraries>>);

/// A function has the name of another one.
#[derive(Debug)]
pub(crate) struct FunctionExists(pub(crate) String);

/// What a partition has stored is malformed, or was written by a later release.
#[derive(Debug)]
pub(crate) struct MalformedLibraries;

impl From<Malformed> for MalformedLibraries {
    fn from(_: Malformed) -> MalformedLibraries {
        MalformedLibraries
    }
}

impl FunctionLibraries {
    /// Returns the libraries, in the order of their names.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Library>> {
        self.libraries.values()
    }

    /// Returns `true` if there is a library of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.libraries.contains_key(name)
    }

    /// Returns the number of functions.
    pub(crate) fn functions(&self) -> usize {
        self.functions.len()
    }

    /// Returns the bytes of all sources.
    pub(crate) fn bytes(&self) -> usize {
        self.iter().map(|library| library.source().len()).sum()
    }

    /// Returns the library of a function, whose name may be written in any case, and the function's place there.
    pub(crate) fn function(&self, name: &[u8]) -> Option<(Arc<Library>, usize)> {
        // What follows a zero byte is no part of a name.
        let name = name.split(|&byte| byte == 0).next()?;
        let name = std::str::from_utf8(name).ok()?;
        self.functions.get(&name.to_ascii_lowercase()).cloned()
    }

    /// Adds a library in place of one of the same name.
    ///
    /// # Errors
    /// A function of another library has the name of one of its functions; nothing has changed.
    pub(crate) fn add(&mut self, library: Library) -> Result<(), FunctionExists> {
        for function in library.functions() {
            let key = function.name.to_ascii_lowercase();
            let own = self.functions.get(&key);
            if own.is_some_and(|(other, _)| other.name() != library.name()) {
                return Err(FunctionExists(function.name.clone()));
            }
        }
        self.remove(library.name());
        let library = Arc::new(library);
        for (at, function) in library.functions().iter().enumerate() {
            let key = function.name.to_ascii_lowercase();
            self.functions.insert(key, (Arc::clone(&library), at));
        }
        self.libraries.insert(library.name().to_owned(), library);
        Ok(())
    }

    /// Removes the library of this name. Returns `false` if there is none.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        let removed = self.libraries.remove(name);
        self.functions.retain(|_, (own, _)| own.name() != name);
        removed.is_some()
    }

    /// Returns the bytes that partitions store.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = vec![VERSION];
        put_count(&mut to, self.libraries.len() as u64);
        for library in self.iter() {
            put_bytes(&mut to, library.source());
            put_count(&mut to, library.functions().len() as u64);
            for function in library.functions() {
                put_bytes(&mut to, function.name.as_bytes());
                to.push(function.description.is_some().into());
                let description = function.description.iter();
                description.for_each(|text| put_bytes(&mut to, text));
                let flags: Vec<&str> = function.flags.names().collect();
                put_count(&mut to, flags.len() as u64);
                flags
                    .iter()
                    .for_each(|flag| put_bytes(&mut to, flag.as_bytes()));
            }
        }
        to
    }

    fn decode(bytes: &[u8]) -> Result<FunctionLibraries, MalformedLibraries> {
        let mut from = Reader::new(bytes);
        if from.u8()? != VERSION {
            return Err(MalformedLibraries);
        }
        let mut all = FunctionLibraries::default();
        for _ in 0..from.count()? {
            let library = read_library(&mut from)?;
            all.add(library).map_err(|_| MalformedLibraries)?;
        }
        from.end()?;
        Ok(all)
    }
}

fn read_library(from: &mut Reader<'_>) -> Result<Library, MalformedLibraries> {
    let library = Library::parse(from.bytes()?).map_err(|_| MalformedLibraries)?;
    let mut functions = Vec::new();
    for _ in 0..from.count()? {
        functions.push(read_function(from)?);
    }
    Ok(library.with_functions(functions))
}

fn read_function(from: &mut Reader<'_>) -> Result<LibraryFunction, MalformedLibraries> {
    let name = from.text()?.to_owned();
    let description = match from.bool()? {
        true => Some(from.bytes()?.to_vec()),
        false => None,
    };
    let mut flags = ScriptFlags::default();
    for flag in from.list(Reader::bytes)? {
        if !flags.set(flag) {
            return Err(MalformedLibraries);
        }
    }
    Ok(LibraryFunction {
        name,
        description,
        flags,
    })
}

impl StoredLibraries {
    /// Decodes what a partition has stored.
    ///
    /// # Errors
    /// See [`MalformedLibraries`].
    pub(crate) fn decode(stored: &[u8]) -> Result<StoredLibraries, MalformedLibraries> {
        let mut from = Reader::new(stored);
        let generation = u64::from_le_bytes(from.array()?);
        let libraries = Arc::new(FunctionLibraries::decode(from.rest())?);
        Ok(StoredLibraries {
            generation,
            libraries,
        })
    }
}

impl LibraryCache {
    /// Returns the libraries, if they are known.
    pub(crate) fn newest(&self) -> Option<StoredLibraries> {
        self.0.read().clone()
    }

    /// Notes libraries that were read.
    pub(crate) fn note(&self, stored: &StoredLibraries) {
        let mut cached = self.0.write();
        if cached
            .as_ref()
            .is_none_or(|own| own.generation < stored.generation)
        {
            *cached = Some(stored.clone());
        }
    }

    /// Forgets libraries of this generation: a partition has later ones.
    pub(crate) fn forget(&self, generation: u64) {
        let mut cached = self.0.write();
        cached.take_if(|own| own.generation == generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str, functions: &[&str]) -> Library {
        let functions = functions.iter().map(|name| LibraryFunction {
            name: (*name).to_owned(),
            description: (functions.len() > 1).then(|| b"text".to_vec()),
            flags: ScriptFlags {
                no_writes: functions.len() > 1,
                allow_cross_slot_keys: true,
                ..ScriptFlags::default()
            },
        });
        let source = format!("#!lua name={name}\n");
        let parsed = Library::parse(source.as_bytes()).expect("a library");
        parsed.with_functions(functions.collect())
    }

    fn stored(libraries: &FunctionLibraries) -> Vec<u8> {
        [&7_u64.to_le_bytes()[..], &libraries.encode()].concat()
    }

    #[test]
    fn libraries_come_back() {
        let mut all = FunctionLibraries::default();
        all.add(library("b", &["f", "G"])).unwrap();
        all.add(library("a", &["h"])).unwrap();
        let bytes = stored(&all);
        let back = StoredLibraries::decode(&bytes).unwrap();
        assert_eq!(back.generation, 7);
        let shown = |all: &FunctionLibraries| format!("{:?}", all.libraries);
        assert_eq!(shown(&back.libraries), shown(&all));
        for len in 0..bytes.len() {
            assert!(StoredLibraries::decode(&bytes[..len]).is_err(), "{len}");
        }
        let later = [&bytes[..8], &[VERSION + 1], &bytes[9..]].concat();
        assert!(StoredLibraries::decode(&later).is_err());
        assert!(StoredLibraries::decode(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn functions_are_found_in_any_case_and_are_unique() {
        let mut all = FunctionLibraries::default();
        all.add(library("a", &["f", "G"])).unwrap();
        for (name, at) in [("F", 0), ("g", 1), ("G\0x", 1)] {
            let (library, found) = all.function(name.as_bytes()).expect("a function");
            assert_eq!((library.name(), found), ("a", at));
        }
        assert!(all.function(b"h").is_none() && all.function(b"").is_none());
        let FunctionExists(name) = all.add(library("b", &["x", "F"])).unwrap_err();
        assert_eq!(
            (name.as_str(), all.functions(), all.has("b")),
            ("F", 2, false)
        );
        // A library takes the place of one of its name.
        all.add(library("a", &["F"])).unwrap();
        assert!(all.function(b"g").is_none() && all.iter().len() == 1);
        assert!(!all.remove("A") && all.remove("a") && all.functions() == 0);
    }

    #[test]
    fn the_newest_libraries_are_cached_until_there_are_later_ones() {
        let cache = LibraryCache::default();
        let of = |generation| StoredLibraries {
            generation,
            ..StoredLibraries::default()
        };
        let newest = || cache.newest().map(|stored| stored.generation);
        assert_eq!(newest(), None);
        cache.note(&of(2));
        cache.note(&of(1));
        assert_eq!(newest(), Some(2));
        cache.forget(1);
        assert_eq!(newest(), Some(2));
        cache.forget(2);
        assert_eq!(newest(), None);
    }
}
