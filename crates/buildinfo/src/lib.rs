//! The commit from which a program was built, and the profile.
//!
//! The build script asks git. It runs again when the commit or a source changes; so only binaries
//! use this crate, and pass the values to libraries as parameters.

#![forbid(unsafe_code)]

/// The commit of the sources: the first twelve hexadecimal digits, and `-dirty` if a source file
/// differs from the commit. The environment variable `KUMIKI_COMMIT`, when set at build time, wins.
/// Without it, and outside of a git checkout, `unknown`.
pub const COMMIT: &str = env!("KUMIKI_BUILD_COMMIT");

/// The cargo profile, by the name of its directory: `debug` is the profile `dev`.
pub const PROFILE: &str = env!("KUMIKI_BUILD_PROFILE");

/// Version, commit and profile, as `--version` prints them behind the program's name:
/// `0.1.0 (0fc3b31a1b2c, release)`.
pub const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("KUMIKI_BUILD_COMMIT"),
    ", ",
    env!("KUMIKI_BUILD_PROFILE"),
    ")"
);
