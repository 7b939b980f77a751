//! The sources that this program was built from.

use admin::Build;

/// The commit and the profile, which the servers' metrics name.
pub(crate) const BUILD: Build = Build {
    commit: buildinfo::COMMIT,
    profile: buildinfo::PROFILE,
};
