//! The program's version, and how it was built.

use crate::exposition::Samples;

/// The version of Redis whose commands these are: clients choose what to send by it.
pub const REDIS_VERSION: &str = "7.0.15";

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Which sources a program was built from, and how. Only the program knows, and says so to what it
/// starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Build {
    /// The commit of the sources; `unknown` if they did not lie in a repository.
    pub commit: &'static str,
    /// The cargo profile.
    pub profile: &'static str,
}

impl Default for Build {
    /// What the compiler knows without help: no commit, and if assertions are checked.
    fn default() -> Build {
        Build {
            commit: "unknown",
            profile: if cfg!(debug_assertions) {
                "debug"
            } else {
                "release"
            },
        }
    }
}

/// The operating system and the processor that it was built for.
pub const PLATFORM: [&str; 2] = [std::env::consts::OS, std::env::consts::ARCH];

/// What runs, as the labels of a sample that is always 1.
pub fn describe(build: Build, out: &mut Samples<'_>) {
    let labels = [
        ("version", VERSION),
        ("commit", build.commit),
        ("profile", build.profile),
        ("redis_version", REDIS_VERSION),
    ];
    out.labelled(&labels, 1);
}
