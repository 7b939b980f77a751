//! Libraries of functions: their sources, and what they register.

use crate::script::{ScriptFlags, sha1_hex, shebang_end};

/// A function of a library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LibraryFunction {
    /// Its name: letters, digits and underscores.
    pub name: String,
    /// What it is for.
    pub description: Option<Vec<u8>>,
    /// What it allows. There is no shebang: the field for it is `false`.
    pub flags: ScriptFlags,
}

/// A library of functions.
#[derive(Clone, Debug)]
pub struct Library {
    pub(crate) name: String,
    pub(crate) source: Vec<u8>,
    pub(crate) functions: Vec<LibraryFunction>,
    sha1: [u8; 40],
    /// Where the code begins: behind the text of the first line.
    code: usize,
}

const BAD_NAME: &str = "ERR Library names can only contain letters, numbers, or underscores(_) and must \
                        be at least one character long";

impl Library {
    /// Parses the line `#!lua name=…`. The functions are not known then.
    ///
    /// # Errors
    /// The line is wrong: the text of the error reply, without its mark.
    pub fn parse(source: &[u8]) -> Result<Library, Vec<u8>> {
        const INVALID: &str = "ERR Invalid library metadata";
        if !source.starts_with(b"#!") {
            return Err("ERR Missing library metadata".into());
        }
        let end = shebang_end(source).ok_or(INVALID)?;
        let words = resp::split_words(&source[2..end]).ok_or(INVALID)?;
        let mut words = words.iter().map(Vec::as_slice);
        let is_glued = !source[2].is_ascii_whitespace();
        let engine = if is_glued { words.next() } else { None }.unwrap_or_default();
        let mut name = None;
        for word in words {
            let Some(value) = word.strip_prefix(b"name=") else {
                return Err([b"ERR Invalid metadata value given: ", word].concat());
            };
            if name.replace(value).is_some() {
                let text = "ERR Invalid metadata value, name argument was given multiple times";
                return Err(text.into());
            }
        }
        let name = name.ok_or("ERR Library name was not given")?;
        let name = check_name(name).ok_or(BAD_NAME)?;
        if !engine.eq_ignore_ascii_case(b"lua") {
            return Err([b"ERR Engine '", engine, b"' not found"].concat());
        }
        Ok(Library {
            name,
            source: source.to_vec(),
            functions: Vec::new(),
            sha1: sha1_hex(source),
            code: end,
        })
    }

    /// Returns the library with the functions that its code was found to register before.
    #[must_use]
    pub fn with_functions(mut self, functions: Vec<LibraryFunction>) -> Library {
        self.functions = functions;
        self
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of its engine.
    #[must_use]
    pub fn engine(&self) -> &'static str {
        "LUA"
    }

    /// Returns its source.
    #[must_use]
    pub fn source(&self) -> &[u8] {
        &self.source
    }

    /// Returns its functions, in the order of their registration.
    #[must_use]
    pub fn functions(&self) -> &[LibraryFunction] {
        &self.functions
    }

    /// Returns the source without the text of the first line, so that lines keep their numbers.
    pub(crate) fn code(&self) -> &[u8] {
        &self.source[self.code..]
    }

    pub(crate) fn sha1_bytes(&self) -> &[u8; 40] {
        &self.sha1
    }
}

/// Returns a name of a library or a function, if it is one.
fn check_name(name: &[u8]) -> Option<String> {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_name = !name.is_empty() && name.iter().all(is_letter);
    is_name.then(|| String::from_utf8_lossy(name).into_owned())
}

/// The functions that the code of a library registers.
#[derive(Debug, Default)]
pub(crate) struct Registration {
    pub(crate) functions: Vec<LibraryFunction>,
    /// The function that will be called; `None` while the library is loaded.
    pub(crate) wanted: Option<String>,
}

impl Registration {
    /// Adds a function. Returns `true` if it will be called.
    ///
    /// # Errors
    /// The name is wrong: the text of the error.
    pub(crate) fn add(
        &mut self,
        name: &[u8],
        description: Option<Vec<u8>>,
        flags: ScriptFlags,
    ) -> Result<bool, &'static str> {
        let name = check_name(name).ok_or(BAD_NAME)?;
        let is_same = |function: &LibraryFunction| function.name.eq_ignore_ascii_case(&name);
        if self.functions.iter().any(is_same) {
            return Err("ERR Function already exists in the library");
        }
        let is_wanted = self.wanted.as_ref() == Some(&name);
        self.functions.push(LibraryFunction {
            name,
            description,
            flags,
        });
        Ok(is_wanted)
    }
}
