//! The processors of loggers and workers (paper 2, section 3.1).
//!
//! `0:1,2,3+4:5,6,10` puts logger 0 on processor 0, where it serves workers on processors 1, 2 and
//! 3, and logger 1 on processor 4, where it serves those on 5, 6 and 10:
//!
//! ```text
//! affinity = place *( "+" place )
//! place    = cpu ":" cpu *( "," cpu )
//! cpu      = 1*DIGIT
//! ```
//!
//! Invariant of a parsed placement: no processor is named twice. [`Affinity::check`] checks that
//! the machine has the processors, against what [`crate::cpus::usable`] returns.

pub mod cpus;

use std::fmt;
use std::str::FromStr;

/// A placement of loggers and workers. Processors are numbered as the operating system numbers
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// For each logger, its processor and those of its workers; at least one logger.
    pub loggers: Vec<LoggerPlace>,
}

/// The processors of a logger and its workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggerPlace {
    /// The logger's processor.
    pub cpu: usize,
    /// Its workers' processors, one worker on each; at least one.
    pub workers: Vec<usize>,
}

/// The reason why a text is not a placement, or not one for this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAffinity {
    /// It does not have the form of a placement.
    #[error(
        "at character {at}, {found} stands where {wanted} should: write each logger's processor \
         and those of its workers, as in 0:1,2,3+4:5,6,10"
    )]
    Syntax {
        /// The position of the wrong character, counted from 1.
        at: usize,
        /// The text found there.
        found: String,
        /// The text expected there.
        wanted: &'static str,
    },
    /// A processor is named twice; two threads cannot have it for themselves.
    #[error(
        "processor {cpu} is named twice, at characters {first} and {second}: each logger and each \
         worker has one for itself"
    )]
    Twice {
        /// The processor.
        cpu: usize,
        /// The position where it is named, counted in characters from 1.
        first: usize,
        /// The position where it is named again.
        second: usize,
    },
    /// The machine has no such processor, or does not let this process use it.
    #[error(
        "processor {cpu} is not there for this process, which may use {}",
        Ranges(usable)
    )]
    Absent {
        /// The processor.
        cpu: usize,
        /// The processors that the process may use, in ascending order.
        usable: Vec<usize>,
    },
}

impl Affinity {
    /// Returns the logger and the processor of each worker, in the order in which they are written.
    pub fn workers(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let places = self.loggers.iter().enumerate();
        places.flat_map(|(logger, place)| place.workers.iter().map(move |&cpu| (logger, cpu)))
    }

    /// Checks that all processors are among the `usable` ones.
    ///
    /// # Errors
    /// Returns [`BadAffinity::Absent`] with the first processor that is not.
    pub fn check(&self, usable: &[usize]) -> Result<(), BadAffinity> {
        let named = |place: &LoggerPlace| [&[place.cpu][..], &place.workers].concat();
        let absent = self
            .loggers
            .iter()
            .flat_map(named)
            .find(|cpu| !usable.contains(cpu));
        match absent {
            None => Ok(()),
            Some(cpu) => Err(BadAffinity::Absent {
                cpu,
                usable: usable.to_vec(),
            }),
        }
    }
}

impl FromStr for Affinity {
    type Err = BadAffinity;

    fn from_str(text: &str) -> Result<Affinity, BadAffinity> {
        let mut parser = Parser {
            text,
            at: 0,
            named: Vec::new(),
        };
        let mut loggers = Vec::new();
        loop {
            let cpu = parser.cpu("the number of a logger's processor")?;
            parser.expect(':', "':' and the processors of its workers")?;
            let mut workers = vec![parser.cpu("the number of a worker's processor")?];
            while parser.take(',') {
                workers.push(parser.cpu("the number of a worker's processor")?);
            }
            loggers.push(LoggerPlace { cpu, workers });
            if !parser.take('+') {
                parser.end("',' and a further worker, or '+' and a further logger")?;
                return Ok(Affinity { loggers });
            }
        }
    }
}

impl fmt::Display for Affinity {
    /// Writes the placement as it is parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, place) in self.loggers.iter().enumerate() {
            let plus = if index == 0 { "" } else { "+" };
            write!(f, "{plus}{}", place.cpu)?;
            for (index, cpu) in place.workers.iter().enumerate() {
                write!(f, "{}{cpu}", if index == 0 { ':' } else { ',' })?;
            }
        }
        Ok(())
    }
}

/// Reads a text from its beginning.
struct Parser<'a> {
    text: &'a str,
    /// The position of the next byte.
    at: usize,
    /// Processors named so far, and the positions of their characters.
    named: Vec<(usize, usize)>,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// Returns the number of the next character, counted from 1.
    fn character(&self) -> usize {
        self.text[..self.at].chars().count() + 1
    }

    fn take(&mut self, sign: char) -> bool {
        let there = self.rest().starts_with(sign);
        self.at += if there { sign.len_utf8() } else { 0 };
        there
    }

    fn expect(&mut self, sign: char, wanted: &'static str) -> Result<(), BadAffinity> {
        if self.take(sign) {
            Ok(())
        } else {
            Err(self.unexpected(wanted))
        }
    }

    fn end(&self, wanted: &'static str) -> Result<(), BadAffinity> {
        if self.rest().is_empty() {
            Ok(())
        } else {
            Err(self.unexpected(wanted))
        }
    }

    /// Parses a processor's number that was not named before.
    fn cpu(&mut self, wanted: &'static str) -> Result<usize, BadAffinity> {
        let rest = self.rest();
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let Ok(cpu) = rest[..digits].parse() else {
            return Err(self.unexpected(wanted));
        };
        let here = self.character();
        if let Some(&(_, first)) = self.named.iter().find(|(named, _)| *named == cpu) {
            let second = here;
            return Err(BadAffinity::Twice { cpu, first, second });
        }
        self.named.push((cpu, here));
        self.at += digits;
        Ok(cpu)
    }

    fn unexpected(&self, wanted: &'static str) -> BadAffinity {
        let found = match self.rest().chars().next() {
            None => "the end".to_owned(),
            // No machine has so many processors.
            Some(digit) if digit.is_ascii_digit() => "a number that is too large".to_owned(),
            Some(other) => format!("'{}'", other.escape_debug()),
        };
        BadAffinity::Syntax {
            at: self.character(),
            found,
            wanted,
        }
    }
}

/// Shows ascending numbers as ranges: `0-3,6`.
struct Ranges<'a>(&'a [usize]);

impl fmt::Display for Ranges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        if rest.is_empty() {
            return f.write_str("none");
        }
        while let Some(&first) = rest.first() {
            let run = rest.iter().zip(first..).take_while(|(a, b)| **a == *b);
            let run = run.count();
            let comma = if rest.len() == self.0.len() { "" } else { "," };
            match run {
                1 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{}", first + run - 1)?,
            }
            rest = &rest[run..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Affinity, BadAffinity> {
        text.parse()
    }

    #[track_caller]
    fn refused(text: &str, words: &[&str]) {
        let said = parse(text).unwrap_err().to_string();
        for word in words {
            assert!(said.contains(word), "{text:?}: {word:?} is missing: {said}");
        }
    }

    #[test]
    fn the_form_of_the_paper_is_understood() {
        let affinity = parse("0:1,2,3+4:5,6,10").unwrap();
        let place = |cpu, workers: &[usize]| LoggerPlace {
            cpu,
            workers: workers.to_vec(),
        };
        assert_eq!(
            affinity.loggers,
            [place(0, &[1, 2, 3]), place(4, &[5, 6, 10])]
        );
        let workers: Vec<_> = affinity.workers().collect();
        assert_eq!(workers, [(0, 1), (0, 2), (0, 3), (1, 5), (1, 6), (1, 10)]);
    }

    #[test]
    fn what_is_shown_is_parsed_again() {
        for text in ["0:1", "7:0", "0:1,2,3+4:5,6,10", "1:2+3:4+5:6,7"] {
            let affinity = parse(text).unwrap();
            assert_eq!(affinity.to_string(), text);
            assert_eq!(parse(&affinity.to_string()), Ok(affinity));
        }
    }

    #[test]
    fn a_wrong_form_is_explained_with_its_place() {
        refused("x", &["character 1", "'x'", "logger's", "0:1,2,3+4:5,6,10"]);
        refused("", &["character 1", "the end", "logger's"]);
        refused("0", &["character 2", "the end", "':'"]);
        refused("0:", &["character 3", "the end", "worker's"]);
        refused(":1", &["character 1", "':'", "logger's"]);
        refused("0:1,", &["character 5", "the end", "worker's"]);
        refused("0:1,,2", &["character 5", "','"]);
        refused("0:1+", &["character 5", "the end", "logger's"]);
        refused("0:1 2", &["character 4", "' '", "'+'"]);
        refused("0:ä", &["character 3", "'ä'"]);
        refused("0:-1", &["character 3", "'-'"]);
        refused("0:1:2", &["character 4", "':'"]);
        refused("0:99999999999999999999", &["character 3", "too large"]);
    }

    #[test]
    fn a_processor_named_twice_is_refused() {
        refused(
            "0:0",
            &["processor 0", "twice", "characters 1 and 3", "for itself"],
        );
        refused("0:1,12+12:2", &["processor 12", "characters 5 and 8"]);
        refused("0:1,01", &["processor 1", "twice"]);
    }

    #[test]
    fn processors_that_are_not_there_are_named() {
        let affinity = parse("0:1+2:99").unwrap();
        assert_eq!(affinity.check(&[0, 1, 2, 99]), Ok(()));
        let said = |usable: &[usize]| affinity.check(usable).unwrap_err().to_string();
        let text = said(&[0, 1, 2, 3, 6]);
        assert!(
            text.contains("processor 99") && text.contains("0-3,6"),
            "{text}"
        );
        assert!(said(&[1, 2]).contains("processor 0 "));
        assert!(said(&[]).contains("none"));
    }

    #[test]
    fn any_text_is_parsed_or_refused() {
        let mut seed = 99_u64;
        for _ in 0..20_000 {
            let text: String = (0..seed % 12)
                .map(|_| {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    b"0123:,+ x"[seed as usize % 9] as char
                })
                .collect();
            if let Ok(affinity) = parse(&text) {
                assert_eq!(parse(&affinity.to_string()), Ok(affinity));
            }
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
    }
}
