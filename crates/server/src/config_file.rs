//! The file that the options of a server come from, as far as the server knows it.

use std::sync::Arc;

/// Changes options in a file, given their names and values.
type ChangeOptions = dyn Fn(&[(&'static str, String)]) -> Result<(), String> + Send + Sync;

/// The file that the server's options come from.
#[derive(Clone)]
pub struct ConfigFile(Arc<ChangeOptions>);

impl ConfigFile {
    /// Creates it from a function that changes options in the file, given their names and values, and returns
    /// the reason if it cannot.
    #[must_use]
    pub fn new(
        change: impl Fn(&[(&'static str, String)]) -> Result<(), String> + Send + Sync + 'static,
    ) -> ConfigFile {
        ConfigFile(Arc::new(change))
    }

    /// Changes options in the file.
    pub(crate) fn change(&self, options: &[(&'static str, String)]) -> Result<(), String> {
        (self.0)(options)
    }
}

impl std::fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a file")
    }
}
