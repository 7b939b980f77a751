//! Bugs that are planted on purpose, so that tests of the tests have something to find.
//!
//! A build with the feature `planted` of this crate contains all of them, and the environment
//! variable `KUMIKI_PLANTED` chooses one when the process first asks. Without the variable such a
//! build behaves as every other one.
//!
//! A build without the feature contains none of them: [`is`] is a constant there, and the compiler
//! removes the code that depends on it. Such a build does not contain the variable's name either,
//! so that a binary with planted code can be recognised by it.

/// A bug that can be planted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The journal calls epochs durable before it has synced them.
    EarlyReply,
    /// Transactions commit without validating what they have read.
    NoValidation,
    /// Transactions that validate when they commit ignore the holds of two-phase locking.
    IgnoredHolds,
    /// Participants of a two-phase commit vote before their part is durable.
    EarlyDecision,
    /// Read-atomic reads leave out the second round.
    OneRound,
    /// A client that coordinates a read-atomic write commits it when one participant has prepared.
    EarlyCommit,
    /// A leader treats its lease as valid without reading the clock.
    StaleLease,
    /// A former leader keeps the effects that it has executed and not committed.
    KeptOverlay,
    /// A former leader keeps staged versions, on which it stages further ones when it leads again.
    KeptChain,
    /// A lock is taken over when its lease has ended by the wall clock.
    TrustedWallClock,
    /// A token is drawn without regard to the last one of the key.
    ForgottenToken,
    /// A lock table that has lost its memory grants before the leases that it forgot have ended.
    ForgottenGrace,
    /// Slots are renewed with versions that are not durable yet.
    EarlyRenewal,
    /// The log gets a change of a large collection without its elements.
    ForgottenElements,
    /// A recovery applies the last change of a collection's elements twice.
    RepeatedElements,
    /// A recovery applies changes of elements to a collection that is newer than they are.
    OldElements,
    /// A leaf of a collection is changed in place although older versions have it.
    SharedNode,
    /// Nodes are freed with a version that leaves although an older version has them.
    EarlyFreeing,
    /// A client that has waited for an element of a list gets it, and the list keeps it.
    DoubledPop,
    /// Commands that read before they write are answered before they are durable.
    EarlyMove,
    /// The durable epoch goes on while it is held for a backup.
    ForgottenHold,
}

/// Returns `true` if this process has this bug; always `false` in a build without planted bugs.
#[cfg(not(feature = "planted"))]
#[inline(always)]
#[must_use]
pub const fn is(_: Bug) -> bool {
    false
}

// What depends on a bug is removed by the compiler.
#[cfg(not(feature = "planted"))]
const _: () = assert!(!is(Bug::EarlyReply));

#[cfg(feature = "planted")]
pub use chosen::{VARIABLE, is};

#[cfg(feature = "planted")]
mod chosen {
    use std::env;
    use std::io::{self, Write};
    use std::process;
    use std::sync::OnceLock;

    use super::Bug;

    /// The environment variable that chooses a bug by its name.
    pub const VARIABLE: &str = "KUMIKI_PLANTED";

    impl Bug {
        /// All bugs.
        pub const ALL: [Bug; 21] = [
            Bug::EarlyReply,
            Bug::NoValidation,
            Bug::IgnoredHolds,
            Bug::EarlyDecision,
            Bug::OneRound,
            Bug::EarlyCommit,
            Bug::StaleLease,
            Bug::KeptOverlay,
            Bug::KeptChain,
            Bug::TrustedWallClock,
            Bug::ForgottenToken,
            Bug::ForgottenGrace,
            Bug::EarlyRenewal,
            Bug::ForgottenElements,
            Bug::RepeatedElements,
            Bug::OldElements,
            Bug::SharedNode,
            Bug::EarlyFreeing,
            Bug::DoubledPop,
            Bug::EarlyMove,
            Bug::ForgottenHold,
        ];

        /// Returns the name that [`VARIABLE`] has for it.
        #[must_use]
        pub const fn name(self) -> &'static str {
            match self {
                Bug::EarlyReply => "early-reply",
                Bug::NoValidation => "no-validation",
                Bug::IgnoredHolds => "ignored-holds",
                Bug::EarlyDecision => "early-decision",
                Bug::OneRound => "one-round",
                Bug::EarlyCommit => "early-commit",
                Bug::StaleLease => "stale-lease",
                Bug::KeptOverlay => "kept-overlay",
                Bug::KeptChain => "kept-chain",
                Bug::TrustedWallClock => "trusted-wall-clock",
                Bug::ForgottenToken => "forgotten-token",
                Bug::ForgottenGrace => "forgotten-grace",
                Bug::EarlyRenewal => "early-renewal",
                Bug::ForgottenElements => "forgotten-elements",
                Bug::RepeatedElements => "repeated-elements",
                Bug::OldElements => "old-elements",
                Bug::SharedNode => "shared-node",
                Bug::EarlyFreeing => "early-freeing",
                Bug::DoubledPop => "doubled-pop",
                Bug::EarlyMove => "early-move",
                Bug::ForgottenHold => "forgotten-hold",
            }
        }
    }

    /// Returns `true` if this process has this bug. The first call reads [`VARIABLE`], and ends
    /// the process if it names no bug.
    #[inline]
    #[must_use]
    pub fn is(bug: Bug) -> bool {
        static CHOSEN: OnceLock<Option<Bug>> = OnceLock::new();
        let from_environment = || {
            let name = env::var_os(VARIABLE).unwrap_or_default();
            parse(&name.to_string_lossy()).unwrap_or_else(|error| {
                // Not with `eprintln`, whose output a test program captures.
                let _ = writeln!(io::stderr(), "{error}");
                process::exit(2)
            })
        };
        *CHOSEN.get_or_init(from_environment) == Some(bug)
    }

    /// Returns the bug of this name, or `None` if the name is empty.
    fn parse(name: &str) -> Result<Option<Bug>, String> {
        let bug = Bug::ALL.into_iter().find(|bug| bug.name() == name);
        if bug.is_none() && !name.is_empty() {
            let names = Bug::ALL.map(Bug::name).join(", ");
            return Err(format!(
                "{VARIABLE}: no planted bug is called '{name}'; there are: {names}"
            ));
        }
        Ok(bug)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn every_bug_has_a_name_of_its_own() {
            for bug in Bug::ALL {
                assert!(parse(bug.name()) == Ok(Some(bug)), "{}", bug.name());
            }
            assert!(parse("") == Ok(None));
        }

        #[test]
        fn an_unknown_name_is_refused_with_the_list() {
            let Err(error) = parse("early") else {
                panic!("'early' is no name");
            };
            assert!(error.contains("'early'"));
            for bug in Bug::ALL {
                assert!(error.contains(bug.name()), "{error}");
            }
        }
    }
}
