//! Checkpoints: the whole store at one epoch, in files, so that the logs before it can be removed.
//!
//! They lie in the directory `checkpoint` beside the logs. A checkpoint of epoch *S* is made of
//! these files, where `<S>` has twenty digits:
//!
//! | name | what | format |
//! |---|---|---|
//! | `<S>-000.part`, `<S>-001.part`, … | the keys, in disjoint shares | [`part`] |
//! | `<S>.manifest` | what belongs to it | [`manifest`] |
//! | `<S>.manifest.new` | a manifest that is not published yet | |
//!
//! The steps of making one:
//!
//! 1. every log continues in a new segment ([`CheckpointDraft`] knows its number);
//! 2. *S* is drawn: it is at least every epoch of the segments before those;
//! 3. the parts are written and synced, while transactions go on;
//! 4. *S* becomes durable, and every log gets a block that closes it;
//! 5. the names of the parts are synced; the manifest is written, synced, renamed to its name, and
//!    that is synced: from here on the checkpoint counts;
//! 6. segments before those of step 1 are removed, and so are older checkpoints.
//!
//! Invariants:
//! 1. A manifest that has its name describes parts that are complete and durable, and an epoch
//!    that is durable in the logs.
//! 2. A segment or an older checkpoint is removed only after the manifest's name is durable.
//!    Removed files are not needed any more: a removal that was not finished makes no difference.
//! 3. A checkpoint that fails leaves no file, as far as the disk lets it, and the journal as it
//!    was. If files stay behind, they have no published manifest, and a recovery removes them.
//! 4. Entries of epochs ≤ *S* count only as the checkpoint has them: a key whose deletion was in a
//!    removed segment does not come back by an older entry in one that is still there.

mod draft;
pub(crate) mod file_name;
mod key;
pub(crate) mod manifest;
mod origin;
pub(crate) mod part;
pub(crate) mod read;
mod remove;
pub(crate) mod run;
mod view;

pub use draft::{CheckpointDraft, PublishedCheckpoint};
pub use key::CheckpointKey;
pub(crate) use origin::RunOrigin;
pub use part::{CheckpointPart, PartWriter};
pub(crate) use remove::remove_files;
pub use view::CheckpointView;
