//! Verification: every object to which a manifest refers is read, and each of its checksums is compared.

use std::collections::BTreeSet;

use crate::error::RepositoryError;
use crate::manifest::BackupManifest;
use crate::repository::Repository;

/// The outcome of a verification.
#[derive(Debug, Default)]
pub struct Verification {
    /// The backups.
    pub backups: usize,
    /// The files that were read, manifests included.
    pub files: u64,
    /// The bytes of data in them.
    pub bytes: u64,
    /// What is wrong, each with its place.
    pub damages: Vec<RepositoryError>,
    /// The number of files to which no backup refers: what interrupted backups have left.
    pub unused: usize,
}

/// Verifies all backups, or those of the chain of the backup `only`. `report` gets the bytes that were read and those
/// that there are; the verification stops if it returns `true`.
///
/// # Errors
/// Returns an error if a manifest is damaged or missing, or the store cannot be read.
pub fn verify(
    repository: &Repository,
    only: Option<&str>,
    report: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Verification, RepositoryError> {
    let mut chains = repository.chains()?;
    if let Some(wanted) = only {
        chains.retain(|chain| chain.backups.iter().any(|backup| backup.name() == wanted));
        if chains.is_empty() {
            return Err(RepositoryError::NoSuchBackup {
                wanted: wanted.to_owned(),
                place: repository.place(),
            });
        }
    }
    let backups = chains.iter().flat_map(|chain| &chain.backups);
    let total: u64 = backups.map(BackupManifest::bytes).sum();
    let mut found = Verification::default();
    for chain in &chains {
        let mut used = BTreeSet::new();
        for (index, backup) in chain.backups.iter().enumerate() {
            found.backups += 1;
            found.files += 1;
            used.insert(backup.object());
            for node in &backup.nodes {
                let number = node.description.node;
                if let Err(error) = repository.files_of(chain, index, number) {
                    found.damages.push(error);
                }
                for piece in &node.pieces {
                    match repository.get_piece(backup, number, piece) {
                        Ok(content) => {
                            found.files += 1;
                            found.bytes += content.len() as u64;
                        }
                        Err(error @ RepositoryError::Store(_)) => return Err(error),
                        Err(error) => found.damages.push(error),
                    }
                    used.insert(piece.object(&chain.name, number));
                    if report(found.bytes, total) {
                        return Ok(found);
                    }
                }
            }
        }
        let objects = repository.objects(&chain.name)?;
        found.unused += objects.difference(&used).count();
    }
    Ok(found)
}
