//! What was read of a journal's files.

use super::base_checkpoint::BaseCheckpoint;
use super::layout::LogDirectory;
use super::recovered::Recovered;
use super::scan::SegmentSummary;

/// The data that was read and is not settled yet.
pub(super) struct LogContents {
    pub(super) recovered: Recovered,
    pub(super) base: Option<BaseCheckpoint>,
    pub(super) logs: Vec<LogDirectory>,
    /// The ends of the segments that are the last of their logs.
    pub(super) ends: Vec<SegmentSummary>,
}
