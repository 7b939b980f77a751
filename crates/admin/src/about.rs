//! The program's version and build.

use crate::exposition::Samples;

/// The version of Redis whose commands the server supports: clients choose their commands by it.
pub const REDIS_VERSION: &str = "7.0.15";

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The sources from which a program was built, and the profile. Only the program knows them, and
/// passes them to the parts that it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Build {
    /// The commit of the sources; `unknown` if they did not lie in a repository.
    pub commit: &'static str,
    /// The cargo profile.
    pub profile: &'static str,
}

impl Default for Build {
    /// Returns what the compiler knows without help: no commit, and if assertions are checked.
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

/// The operating system and the processor for which it was built.
pub const PLATFORM: [&str; 2] = [std::env::consts::OS, std::env::consts::ARCH];

/// Adds a sample that is always 1, whose labels describe the program.
pub fn describe(build: Build, out: &mut Samples<'_>) {
    let labels = [
        ("version", VERSION),
        ("commit", build.commit),
        ("profile", build.profile),
        ("redis_version", REDIS_VERSION),
    ];
    out.labelled(&labels, 1);
}
