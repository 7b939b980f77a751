//! Sources of scripts.

use sha1::{Digest, Sha1};

/// What a script allows, which the line `#!lua flags=…` says.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ScriptFlags {
    /// There is such a line. A script without one decides by its first command.
    pub has_shebang: bool,
    /// It calls no command that writes.
    pub no_writes: bool,
    /// It may run while memory is short.
    pub allow_oom: bool,
    /// It may run on a replica with old data.
    pub allow_stale: bool,
    /// It must not run in a cluster.
    pub no_cluster: bool,
    /// It may use keys of several slots.
    pub allow_cross_slot_keys: bool,
}

impl ScriptFlags {
    /// Returns the names of the flags that are set, without the shebang.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let flags = [
            ("no-writes", self.no_writes),
            ("allow-oom", self.allow_oom),
            ("allow-stale", self.allow_stale),
            ("no-cluster", self.no_cluster),
            ("allow-cross-slot-keys", self.allow_cross_slot_keys),
        ];
        flags
            .into_iter()
            .filter_map(|(name, set)| set.then_some(name))
    }

    /// Sets the flag of a name. Returns `false` if there is none.
    pub fn set(&mut self, name: &[u8]) -> bool {
        let flag = match name {
            b"no-writes" => &mut self.no_writes,
            b"allow-oom" => &mut self.allow_oom,
            b"allow-stale" => &mut self.allow_stale,
            b"no-cluster" => &mut self.no_cluster,
            b"allow-cross-slot-keys" => &mut self.allow_cross_slot_keys,
            _ => return false,
        };
        *flag = true;
        true
    }
}

/// The source of a script.
#[derive(Clone, Debug)]
pub struct Script {
    body: Vec<u8>,
    sha1: [u8; 40],
    flags: ScriptFlags,
    /// Where the code begins: behind the first line's text, if that is a shebang.
    code: usize,
}

impl Script {
    /// Parses the line `#!lua flags=…`, if the body begins with one.
    ///
    /// # Errors
    /// The line is wrong: the text of the error reply, without its mark.
    pub fn new(body: &[u8]) -> Result<Script, Vec<u8>> {
        let mut script = Script {
            body: body.to_vec(),
            sha1: sha1_hex(body),
            flags: ScriptFlags::default(),
            code: 0,
        };
        if body.starts_with(b"#!") {
            script.code = shebang_end(body).ok_or("ERR Invalid script shebang")?;
            script.flags = parse_shebang(&body[..script.code])?;
        }
        Ok(script)
    }

    /// Returns the SHA-1 of the body, as 40 hexadecimal digits in lower case.
    #[must_use]
    pub fn sha1(&self) -> &str {
        std::str::from_utf8(&self.sha1).expect("hexadecimal digits")
    }

    /// Returns the body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns what the script allows.
    #[must_use]
    pub fn flags(&self) -> ScriptFlags {
        self.flags
    }

    /// Returns the body without the text of the shebang, so that lines keep their numbers.
    pub(crate) fn code(&self) -> &[u8] {
        &self.body[self.code..]
    }

    pub(crate) fn sha1_bytes(&self) -> &[u8; 40] {
        &self.sha1
    }
}

/// Returns the SHA-1 of some bytes, as hexadecimal digits in lower case.
#[must_use]
pub fn sha1_hex(bytes: &[u8]) -> [u8; 40] {
    let mut hex = [0; 40];
    for (digits, byte) in hex.chunks_exact_mut(2).zip(Sha1::digest(bytes)) {
        digits[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        digits[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    hex
}

/// Returns the end of a source's first line, which has no zero byte.
pub(crate) fn shebang_end(source: &[u8]) -> Option<usize> {
    let end = source.iter().position(|byte| matches!(byte, b'\n' | 0));
    end.filter(|&end| source[end] == b'\n')
}

fn parse_shebang(line: &[u8]) -> Result<ScriptFlags, Vec<u8>> {
    let refuse = |text: &str, word: &[u8]| Err([text.as_bytes(), word].concat());
    let words = resp::split_words(line).ok_or("ERR Invalid engine in script shebang")?;
    let mut words = words.iter().map(Vec::as_slice);
    let engine = words.next().unwrap_or_default();
    if engine != b"#!lua" {
        return refuse("ERR Unexpected engine in script shebang: ", engine);
    }
    let mut flags = ScriptFlags {
        has_shebang: true,
        ..ScriptFlags::default()
    };
    for word in words {
        let Some(names) = word.strip_prefix(b"flags=") else {
            return refuse("ERR Unknown lua shebang option: ", word);
        };
        for name in names.split(|&byte| byte == b',') {
            if !name.is_empty() && !flags.set(name) {
                return refuse("ERR Unexpected flag in script shebang: ", name);
            }
        }
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(body: &str) -> String {
        String::from_utf8(Script::new(body.as_bytes()).unwrap_err()).unwrap()
    }

    #[test]
    fn a_shebang_has_flags() {
        let script = Script::new(b"#!lua flags=no-writes,allow-oom\nreturn 1").unwrap();
        let expected = ScriptFlags {
            has_shebang: true,
            no_writes: true,
            allow_oom: true,
            ..ScriptFlags::default()
        };
        assert_eq!(script.flags(), expected);
        assert_eq!(script.code(), b"\nreturn 1");
        let plain = Script::new(b"return 1").unwrap();
        assert_eq!(plain.flags(), ScriptFlags::default());
        assert_eq!(plain.sha1(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }

    #[test]
    fn wrong_shebangs_are_refused() {
        assert_eq!(refusal("#!lua"), "ERR Invalid script shebang");
        assert_eq!(
            refusal("#!python\nreturn 1"),
            "ERR Unexpected engine in script shebang: #!python"
        );
        assert_eq!(
            refusal("#! lua\nreturn 1"),
            "ERR Unexpected engine in script shebang: #!"
        );
        assert_eq!(
            refusal("#!lua flags=no-writes,foo\nreturn 1"),
            "ERR Unexpected flag in script shebang: foo"
        );
        assert_eq!(
            refusal("#!lua flags=no-writes name=x\nreturn 1"),
            "ERR Unknown lua shebang option: name=x"
        );
    }
}
