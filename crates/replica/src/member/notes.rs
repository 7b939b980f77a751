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
    /// The reasons for which links to nodes were refused, and the times at which they were refused last.
    refused_links: BTreeMap<NodeId, (String, Duration)>,
    /// Nodes as which a second process took part, and the time at which its link was refused last.
    duplicates: BTreeMap<NodeId, Duration>,
}

impl MemberNotes {
    /// Notes that there is a link to a node, or that the link was refused for this reason. Returns
    /// `true` if that is news.
    pub(super) fn note_link(
        &mut self,
        node: NodeId,
        refused: Option<String>,
        now: Duration,
    ) -> bool {
        let earlier = self.refused_links.remove(&node).map(|(reason, _)| reason);
        let is_news = earlier != refused;
        if let Some(reason) = refused {
            self.refused_links.insert(node, (reason, now));
        }
        is_news
    }

    /// Notes that the link of a second process that takes part as a node was refused. Returns
    /// `true` if that is news.
    pub(super) fn note_duplicate(&mut self, node: NodeId, now: Duration) -> bool {
        self.duplicates.insert(node, now).is_none()
    }

    /// Returns all notes as one text, with the reason why a snapshot was refused, and the difference
    /// between the members' states. A refused link is noted for `refused_for` after it was refused: a second
    /// process that still runs tries again at once, and so does a member that needs the link. A follower needs no
    /// links to others, and does not find out that they would be accepted again.
    pub(super) fn text(
        &self,
        snapshot_refused: Option<&String>,
        difference: Option<&String>,
        now: Duration,
        refused_for: Duration,
    ) -> Option<String> {
        let general = self.log_trouble.as_ref().or(self.general.as_ref());
        let general = general.or(snapshot_refused).cloned();
        let is_recent = |refused: Duration| now < refused + refused_for;
        let refused = self.refused_links.iter();
        let refused = refused.filter(|(_, (_, refused))| is_recent(*refused));
        let refused =
            refused.map(|(node, (reason, _))| format!("no link to node {node}: {reason}"));
        let duplicates = self.duplicates.iter();
        let duplicates = duplicates.filter(|(_, refused)| is_recent(**refused));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_link_is_noted_until_it_is_there_or_has_not_been_tried_for_a_while() {
        let seconds = Duration::from_secs;
        let mut notes = MemberNotes::default();
        let text = |notes: &MemberNotes, now| notes.text(None, None, seconds(now), seconds(3));
        let refused = || Some("why".to_owned());
        let node = NodeId(7);
        assert!(!notes.note_link(node, None, seconds(1)));
        assert!(notes.note_link(node, refused(), seconds(1)));
        assert!(!notes.note_link(node, refused(), seconds(2)), "it is known");
        let noted = Some("no link to node 7: why".to_owned());
        assert_eq!(text(&notes, 4), noted);
        assert_eq!(text(&notes, 5), None, "it is not tried any more");
        notes.note_link(node, refused(), seconds(6));
        assert_eq!(text(&notes, 6), noted);
        assert!(notes.note_link(node, None, seconds(7)));
        assert_eq!(text(&notes, 7), None, "it is there");
    }
}
