//! The hold of a transaction that runs in slices on one record: see module `holds::update`.

use base::transaction::Holder;

use crate::record::VersionRef;

/// See the module's description.
pub(crate) struct UpdateHold {
    pub(crate) holder: Holder,
    /// The version that the transaction will publish, from when readers are excluded.
    pub(crate) version: Option<VersionRef>,
}
