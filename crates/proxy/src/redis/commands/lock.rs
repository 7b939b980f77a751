//! The proxy's own commands about locks.

use super::special::LockCommand;

/// Commands that the proxy always has, and how many arguments they take.
pub(crate) const LOCK_COMMANDS: &[(&str, i64, LockCommand)] = &[
    ("lock.acquire", -5, LockCommand::Acquire),
    ("lock.renew", 5, LockCommand::Renew),
    ("lock.release", 3, LockCommand::Release),
    ("lock.info", 2, LockCommand::Info),
];

/// The error for guards where no node can enforce them.
pub(crate) const NO_GUARD: &str = "these nodes compare no tokens, so that locks are advisory \
    before them: compare the token where the data is, for example in a script";
