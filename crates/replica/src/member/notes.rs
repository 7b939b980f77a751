//! Notes for people about a member: what it waits for, and what is wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use base::NodeId;

/// Returns the note about a second process that takes part as a node.
pub(crate) fn duplicate_note(node: NodeId) -> String {
    format!(
        "two processes take part as node {node}: the second one is refused. Stop it and delete its data \
         directory, which is a copy"
    )
}

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct MemberNotes {
    /// What the member waits for, or the reason why it cannot lead.
    pub(super) general: Option<String>,
    /// The reason why the log cannot be written at the moment.
    pub(super) log_trouble: Option<String>,
    /// The reasons for which links to nodes were refused.
    refused_links: BTreeMap<NodeId, String>,
    /// Nodes as which a second process took part, and the time at which its link was refused last.
    duplicates: BTreeMap<NodeId, Duration>,
}

impl MemberNotes {
    /// Notes that there is a link to a node, or that the link was refused for this reason. Returns
    /// `true` if that is news.
    pub(super) fn note_link(&mut self, node: NodeId, refused: Option<String>) -> bool {
        let earlier = match refused {
            Some(reason) => self.refused_links.insert(node, reason),
            None => self.refused_links.remove(&node),
        };
        earlier.as_ref() != self.refused_links.get(&node)
    }

    /// Notes that the link of a second process that takes part as a node was refused. Returns
    /// `true` if that is news.
    pub(super) fn note_duplicate(&mut self, node: NodeId, now: Duration) -> bool {
        self.duplicates.insert(node, now).is_none()
    }

    /// Returns all notes as one text, with the reason why a snapshot was refused, and the difference
    /// between the members' states. A second process is noted for `duplicates_for` after its
    /// link was refused: one that still runs tries again at once.
    pub(super) fn text(
        &self,
        snapshot_refused: Option<&String>,
        difference: Option<&String>,
        now: Duration,
        duplicates_for: Duration,
    ) -> Option<String> {
        let general = self.log_trouble.as_ref().or(self.general.as_ref());
        let general = general.or(snapshot_refused).cloned();
        let refused = self.refused_links.iter();
        let refused = refused.map(|(node, reason)| format!("no link to node {node}: {reason}"));
        let duplicates = self.duplicates.iter();
        let duplicates = duplicates.filter(|(_, refused)| now < **refused + duplicates_for);
        let duplicates = duplicates.map(|(node, _)| duplicate_note(*node));
        let notes = general
            .into_iter()
            .chain(difference.cloned())
            .chain(refused)
            .chain(duplicates);
        let notes: Vec<String> = notes.collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}
