//! The settings of a session: `SET kumiki.placement = 'remote-remote'`.

use datafusion::common::config::{ConfigExtension, ConfigOptions};
use datafusion::common::extensions_options;
use operators::Placement;
use operators::placement::UnknownPlacement;

extensions_options! {
    /// Settings of ours, beside DataFusion's.
    pub struct KumikiOptions {
        /// Where fragments run: auto, local, remote-local or remote-remote.
        pub placement: String, default = "auto".to_owned()
        /// Runs filters, projections, aggregates and limits beside the data. If false, scans yield whole columns.
        pub push_down: bool, default = true
        /// Aggregates are computed beside the data if there are at least so many rows for each group, as far as that is known.
        pub rows_for_each_group: u64, default = 4
    }
}

impl ConfigExtension for KumikiOptions {
    const PREFIX: &'static str = "kumiki";
}

impl KumikiOptions {
    /// Returns the settings of a session; the defaults if it has none.
    #[must_use]
    pub fn of(config: &ConfigOptions) -> KumikiOptions {
        let found = config.extensions.get::<KumikiOptions>();
        found.cloned().unwrap_or_default()
    }

    /// Returns the requested placement.
    ///
    /// # Errors
    /// Returns an error if there is no such placement; the text lists them.
    pub fn wanted(&self) -> Result<Placement, UnknownPlacement> {
        self.placement.parse()
    }
}
