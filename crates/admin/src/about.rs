//! What this program is: its version and how it was built.

use crate::exposition::Samples;

/// The version of Redis whose commands these are: clients choose what to send by it.
pub const REDIS_VERSION: &str = "7.0.15";

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that it was built from, where whoever built it has said so by the variable
/// `KUMIKI_COMMIT`: sources need not lie in a repository.
pub const COMMIT: &str = match option_env!("KUMIKI_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// How the compiler was told to work.
pub const PROFILE: &str = if cfg!(debug_assertions) {
    "debug"
} else {
    "release"
};

/// The operating system and the processor that it was built for.
pub const PLATFORM: [&str; 2] = [std::env::consts::OS, std::env::consts::ARCH];

/// What runs, as the labels of a sample that is always 1.
pub fn describe(out: &mut Samples<'_>) {
    let labels = [
        ("version", VERSION),
        ("commit", COMMIT),
        ("profile", PROFILE),
        ("redis_version", REDIS_VERSION),
    ];
    out.labelled(&labels, 1);
}
