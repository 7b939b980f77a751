//! The clients that monitor the server (`MONITOR`): they get a line for each command that a client gives,
//! unless it is one of administration. Secrets are not shown.
//!
//! Each runtime gathers the lines of its commands in a turn, and gives them to the runtimes that have
//! monitors at the end of the turn. The commands of a block are shown when the block executes.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The number of monitors of each runtime.
pub(crate) struct MonitorRegistry {
    /// All of them: a command costs one load while there is none.
    all: AtomicUsize,
    by_runtime: Box<[AtomicUsize]>,
}

impl MonitorRegistry {
    /// Creates the registry of so many runtimes.
    pub(crate) fn new(runtimes: usize) -> MonitorRegistry {
        MonitorRegistry {
            all: AtomicUsize::new(0),
            by_runtime: (0..runtimes).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    /// Returns `true` if there are monitors.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.all.load(Ordering::Relaxed) > 0
    }

    /// Adds a monitor of a runtime.
    pub(crate) fn add(&self, runtime: usize) {
        self.by_runtime[runtime].fetch_add(1, Ordering::SeqCst);
        self.all.fetch_add(1, Ordering::SeqCst);
    }

    /// Removes a monitor that was added before.
    pub(crate) fn remove(&self, runtime: usize) {
        self.all.fetch_sub(1, Ordering::SeqCst);
        self.by_runtime[runtime].fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns the runtimes that have monitors.
    pub(crate) fn runtimes(&self) -> impl Iterator<Item = usize> {
        let counts = self.by_runtime.iter().enumerate();
        counts
            .filter(|(_, count)| count.load(Ordering::SeqCst) > 0)
            .map(|(runtime, _)| runtime)
    }
}

/// Appends the line of a command. It ends early when there are more than `most` bytes: then no monitor gets the
/// lines.
pub(crate) fn write_line<'a>(
    out: &mut Vec<u8>,
    at: SystemTime,
    (database, client): (u16, SocketAddr),
    args: impl Iterator<Item = &'a [u8]>,
    most: usize,
) {
    let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (secs, micros) = (at.as_secs(), at.subsec_micros());
    write!(out, "+{secs}.{micros:06} [{database} {client}]").expect("a Vec takes all bytes");
    for arg in args {
        out.extend_from_slice(b" \"");
        for &byte in arg {
            match byte {
                b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\t' => out.extend_from_slice(b"\\t"),
                0x07 => out.extend_from_slice(b"\\a"),
                0x08 => out.extend_from_slice(b"\\b"),
                b' '..=b'~' => out.push(byte),
                _ => write!(out, "\\x{byte:02x}").expect("as above"),
            }
            if out.len() > most {
                return;
            }
        }
        out.push(b'"');
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_line_has_time_client_and_arguments() {
        let at = UNIX_EPOCH + Duration::from_micros(1_795_952_579_000_042);
        let client = SocketAddr::from(([127, 0, 0, 1], 9));
        let args = [&b"set"[..], b"a\x01\"\\", b"\r\n\t\x07\x08 \xff"];
        let mut out = Vec::new();
        write_line(&mut out, at, (3, client), args.into_iter(), 1000);
        let expected = "+1795952579.000042 [3 127.0.0.1:9] \"set\" \"a\\x01\\\"\\\\\" \"\\r\\n\\t\\a\\b \\xff\"\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let (mut out, long) = (Vec::new(), vec![0; 10_000]);
        write_line(&mut out, at, (0, client), [&*long].into_iter(), 100);
        assert!((101..110).contains(&out.len()), "{}", out.len());
    }

    #[test]
    fn runtimes_with_monitors_are_known() {
        let registry = MonitorRegistry::new(3);
        assert!(!registry.any());
        registry.add(2);
        registry.add(2);
        registry.add(0);
        registry.remove(2);
        assert_eq!(registry.runtimes().collect::<Vec<_>>(), [0, 2]);
        registry.remove(2);
        registry.remove(0);
        assert!(!registry.any() && registry.runtimes().next().is_none());
    }
}
