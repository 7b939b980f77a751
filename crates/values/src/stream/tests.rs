//! Streams in both forms, to which the same is done, beside models.

use std::collections::BTreeMap;

use super::*;
use crate::leb128::push_bytes;
use crate::tree::VersionStamp;

type Entry = (EntryId, Vec<Vec<u8>>);
/// The pending entries of a group, each with its consumer, the time of its last delivery and the number of its
/// deliveries.
type Pending = BTreeMap<EntryId, (Vec<u8>, u64, u64)>;

/// The position of a group, its consumers, and its pending entries.
#[derive(Clone)]
struct Group {
    position: GroupPosition,
    consumers: BTreeMap<Vec<u8>, (u64, Option<u64>)>,
    pending: Pending,
}

fn id(number: u64) -> EntryId {
    EntryId {
        ms: number / 3,
        number: number % 3,
    }
}

fn owned(entry: StreamEntry<'_>) -> Entry {
    (entry.id, entry.fields().map(<[u8]>::to_vec).collect())
}

fn blobs_of(fields: &[Vec<u8>]) -> Vec<u8> {
    let mut blobs = Vec::new();
    fields
        .iter()
        .for_each(|field| push_bytes(&mut blobs, field));
    blobs
}

/// A stream in both forms.
struct BothForms {
    packed: Vec<u8>,
    trees: StreamTrees,
}

impl BothForms {
    fn new() -> BothForms {
        let packed = Vec::new();
        let trees = StreamTrees::of_packed(&packed, VersionStamp(1));
        BothForms { packed, trees }
    }

    /// Makes changes, which are logged and read from the log. Returns which of them fit.
    fn apply(&mut self, changes: &[StreamChange<'_>]) -> Vec<bool> {
        let mut editor = PackedStreamEditor::new(&self.packed);
        let mut all = Vec::new();
        for change in changes {
            let mut log = Vec::new();
            change.log(&mut log);
            for length in 0..log.len() {
                assert_eq!(StreamChange::read(&mut &log[..length]), None);
            }
            let mut rest = &log[..];
            let read = StreamChange::read(&mut rest).expect("it is well-formed");
            assert!(read == *change && rest.is_empty());
            let fits = editor.apply(change);
            assert_eq!(self.trees.apply(&read), fits, "{change:?}");
            all.push(fits);
        }
        let changed = editor.into_changed();
        self.packed = changed.unwrap_or(std::mem::take(&mut self.packed));
        all
    }

    fn views(&self) -> [StreamView<'_>; 2] {
        [StreamView::new(&self.packed), self.trees.view().into()]
    }

    /// Checks that both forms have the same bytes, and makes the trees anew now and then.
    fn compare(&mut self, random: &mut fastrand::Rng) {
        if self.packed.is_empty() {
            return;
        }
        assert!(StreamView::new(&self.packed).check());
        assert_eq!(self.trees.view().to_packed(), self.packed);
        if random.u8(..20) == 0 {
            self.trees = StreamTrees::of_packed(&self.packed, VersionStamp(1));
            assert_eq!(self.trees.view().to_packed(), self.packed);
        }
    }
}

fn check(view: StreamView<'_>, model: &[Entry], random: &mut fastrand::Rng) {
    assert_eq!(view.len(), model.len());
    assert_eq!(view.first().map(owned).as_ref(), model.first());
    assert_eq!(view.last().map(owned).as_ref(), model.last());
    let highest = model
        .last()
        .map_or(1, |last| last.0.ms.saturating_mul(3).saturating_add(3));
    let (start, end) = (id(random.u64(..highest)), id(random.u64(..=highest)));
    let inside = model
        .iter()
        .filter(|entry| (start..=end).contains(&entry.0));
    let inside: Vec<Entry> = inside.cloned().collect();
    assert_eq!(
        view.range(start, end).map(owned).collect::<Vec<_>>(),
        inside
    );
    let mut back: Vec<Entry> = view.range_back(start, end).map(owned).collect();
    back.reverse();
    assert_eq!(back, inside);
    let all: Vec<Entry> = view
        .range_back(EntryId::MIN, EntryId::MAX)
        .map(owned)
        .collect();
    assert!(all.iter().rev().eq(model));
    let own = model.iter().find(|entry| entry.0 == start);
    assert_eq!(view.get(start).map(owned).as_ref(), own);
    let in_nodes: usize = view.nodes().map(|node| node.len).sum();
    assert_eq!(in_nodes, model.len());
}

/// Random changes, beside a vector.
#[test]
fn a_stream_is_what_was_done_to_it() {
    let mut random = fastrand::Rng::with_seed(7);
    let (mut model, mut forms): (Vec<Entry>, _) = (Vec::new(), BothForms::new());
    let (mut last, mut added, mut longest) = (0, 0, 0);
    for round in 0..3000 {
        for _ in 0..random.usize(1..4) {
            match random.u8(..12) {
                0..2 if !model.is_empty() => {
                    let at = random.usize(..model.len());
                    let gone = StreamChange::Delete { id: model[at].0 };
                    let other = StreamChange::Delete { id: EntryId::MAX };
                    assert_eq!(forms.apply(&[gone, gone, other]), [true, false, false]);
                    model.remove(at);
                }
                2 if random.u8(..16) == 0 => {
                    let limit = [50, 1000][usize::from(random.bool())];
                    let trim = StreamTrim {
                        goal: TrimGoal::Length(random.usize(100..600)),
                        approximate: random.bool().then_some(limit),
                    };
                    let [entries, again] = forms.views().map(|view| trim.count(view));
                    assert_eq!(entries, again);
                    assert!(trim.approximate.is_none_or(|limit| entries <= limit));
                    let fits = forms.apply(&[StreamChange::RemoveOldest { entries }]);
                    assert_eq!(fits, [entries > 0]);
                    model.drain(..entries);
                }
                3 if random.u8(..32) == 0 && !model.is_empty() => {
                    let from = model[random.usize(..=model.len() / 2)].0;
                    let trim = StreamTrim {
                        goal: TrimGoal::From(from),
                        approximate: None,
                    };
                    let [entries, again] = forms.views().map(|view| trim.count(view));
                    assert!(entries == again && model[entries].0 == from);
                    forms.apply(&[StreamChange::RemoveOldest { entries }]);
                    model.drain(..entries);
                }
                4 if random.u8(..128) == 0 => {
                    let entries = model.len();
                    forms.apply(&[StreamChange::RemoveOldest { entries }]);
                    model.clear();
                }
                _ => {
                    last += random.u64(1..5);
                    added += 1;
                    let mut value = || vec![random.u8(..); random.usize(..90)];
                    let mut fields: Vec<Vec<u8>> =
                        (0..2 + 2 * (round % 2)).map(|_| value()).collect();
                    if random.u8(..4) > 0 {
                        fields
                            .iter_mut()
                            .step_by(2)
                            .for_each(|name| *name = vec![b'n'; 3]);
                    }
                    let fields_of = blobs_of(&fields);
                    let change = StreamChange::Add {
                        id: id(last),
                        fields: &fields_of,
                    };
                    assert_eq!(forms.apply(&[change, change]), [true, false]);
                    model.push((id(last), fields));
                }
            }
        }
        for view in forms.views() {
            assert_eq!((view.last_id(), view.added()), (id(last), added));
            check(view, &model, &mut random);
        }
        forms.compare(&mut random);
        longest = longest.max(model.len());
    }
    assert!(longest > 300, "it had at most {longest} entries");
}

#[test]
fn trims_remove_whole_nodes_if_they_are_approximate() {
    let mut forms = BothForms::new();
    let fields = blobs_of(&[b"f".to_vec(), b"v".to_vec()]);
    for number in 1..=1001 {
        forms.apply(&[StreamChange::Add {
            id: id(number),
            fields: &fields,
        }]);
    }
    let trim = |forms: &mut BothForms, length, limit| {
        let trim = StreamTrim {
            goal: TrimGoal::Length(length),
            approximate: Some(limit),
        };
        let [entries, again] = forms.views().map(|view| trim.count(view));
        assert_eq!(entries, again);
        forms.apply(&[StreamChange::RemoveOldest { entries }]);
        entries
    };
    assert_eq!(trim(&mut forms, 555, 1000), 400);
    assert_eq!(trim(&mut forms, 300, 99), 0);
    assert_eq!(trim(&mut forms, 300, 250), 200);
    assert!(forms.views().iter().all(|view| view.len() == 401));
    // Deleted entries take their places in a node.
    let deletions = (602..=650).map(|number| StreamChange::Delete { id: id(number) });
    let fit = forms.apply(&deletions.collect::<Vec<_>>());
    assert!(fit.iter().all(|fits| *fits));
    assert_eq!(trim(&mut forms, 301, 1000), 51);
    assert!(forms.views().iter().all(|view| view.nodes().count() == 4));
}

/// Ids far from each other, and those whose parts are the greatest.
#[test]
fn entries_of_a_node_may_have_any_ids() {
    let (mut forms, mut random) = (BothForms::new(), fastrand::Rng::with_seed(2));
    let mut all = vec![
        (0, 1),
        (0, u64::MAX),
        (1, 0),
        (u64::MAX, 0),
        (u64::MAX, u64::MAX),
    ];
    all.extend((0..40).map(|shift| (1 << (shift + 2), random.u64(..))));
    all.sort_unstable();
    let all = all.into_iter().map(|(ms, number)| EntryId { ms, number });
    let model: Vec<Entry> = all.map(|id| (id, vec![vec![1], Vec::new()])).collect();
    for (id, fields) in &model {
        let fields = blobs_of(fields);
        let id = *id;
        assert_eq!(
            forms.apply(&[StreamChange::Add {
                id,
                fields: &fields
            }]),
            [true]
        );
    }
    for view in forms.views() {
        check(view, &model, &mut random);
        let back = view.range_back(EntryId::MAX, EntryId::MAX).map(owned);
        assert!(back.eq(model.last().cloned()));
    }
    forms.compare(&mut random);
}

fn check_group(group: &GroupView<'_>, name: &[u8], model: &Group, random: &mut fastrand::Rng) {
    assert_eq!((group.name(), group.position()), (name, model.position));
    let consumers = group.consumers().into_iter();
    let consumers = consumers.map(|(key, own)| {
        assert_eq!(group.consumer_name(key), &own.name[..]);
        assert_eq!(group.consumer(&own.name), Some((key, own.clone())));
        (own.name.to_vec(), (own.seen_ms, own.active_ms))
    });
    assert!(consumers.eq(model.consumers.clone()));
    assert_eq!(group.consumer_count(), model.consumers.len());
    assert_eq!(group.consumer(b"absent"), None);
    let owned = |entry: PendingEntry| {
        let consumer = group.consumer_name(entry.consumer).to_vec();
        (entry.id, (consumer, entry.delivered_ms, entry.deliveries))
    };
    let from = id(random.u64(..40));
    let expected = model.pending.range(from..);
    let expected: Vec<_> = expected.map(|(id, own)| (*id, own.clone())).collect();
    assert!(group.pending_from(from).map(owned).eq(expected.clone()));
    assert_eq!(
        group.pending(from).map(owned),
        expected.first().filter(|own| own.0 == from).cloned()
    );
    let last = model.pending.iter().next_back();
    let last = last.map(|(id, own)| (*id, own.clone()));
    assert_eq!(group.last_pending().map(owned), last);
    assert_eq!(group.pending_count(), model.pending.len());
    for (key, consumer) in group.consumers() {
        let own = expected
            .iter()
            .filter(|entry| entry.1.0 == consumer.name[..]);
        assert!(group.pending_of(key, from).map(owned).eq(own.cloned()));
        let all = model.pending.values();
        let all = all.filter(|own| own.0 == consumer.name[..]).count();
        assert_eq!(group.pending_count_of(key), all);
    }
}

/// Random changes of groups, beside maps.
#[test]
fn groups_are_what_was_done_to_them() {
    let mut random = fastrand::Rng::with_seed(9);
    let (mut model, mut forms) = (BTreeMap::<Vec<u8>, Group>::new(), BothForms::new());
    let fields = blobs_of(&[b"f".to_vec(), b"v".to_vec()]);
    forms.apply(&[StreamChange::Add {
        id: id(1),
        fields: &fields,
    }]);
    for now_ms in 0..6000 {
        let name = vec![b'a' + random.u8(..5); random.usize(..200)];
        let consumer = vec![b'k' + random.u8(..9); random.usize(..40)];
        let entry = id(random.u64(..40));
        let own = model.get_mut(&name);
        let (change, fits) = match (random.u8(..10), own) {
            (0, Some(own)) => {
                let there = own.consumers.remove(&consumer).is_some();
                own.pending.retain(|_, pending| pending.0 != consumer);
                let (group, name) = (&name[..], &consumer[..]);
                (StreamChange::RemoveConsumer { group, name }, there)
            }
            (1, Some(own)) => {
                let there = own.pending.remove(&entry).is_some();
                let (group, id) = (&name[..], entry);
                (StreamChange::RemovePending { group, id }, there)
            }
            (2, own) if random.u8(..2) == 0 => {
                let there = own.is_some();
                model.remove(&name);
                (StreamChange::RemoveGroup { name: &name }, there)
            }
            (3, own) => {
                let position = GroupPosition {
                    last_id: entry,
                    entries_read: random.bool().then(|| random.u64(..u64::MAX)),
                };
                match own {
                    Some(own) => own.position = position,
                    None => {
                        let group = Group {
                            position,
                            consumers: BTreeMap::new(),
                            pending: BTreeMap::new(),
                        };
                        model.insert(name.clone(), group);
                    }
                }
                let name = &name[..];
                (StreamChange::PutGroup { name, position }, true)
            }
            (4..6, own) => {
                let times = (now_ms, random.bool().then_some(now_ms + 1));
                let fits = own.map(|own| own.consumers.insert(consumer.clone(), times));
                let change = StreamChange::PutConsumer {
                    group: &name,
                    name: &consumer,
                    seen_ms: times.0,
                    active_ms: times.1,
                };
                (change, fits.is_some())
            }
            (_, own) => {
                let deliveries = random.u64(..1 << 40);
                let own = own.filter(|own| own.consumers.contains_key(&consumer));
                let pending = (consumer.clone(), now_ms, deliveries);
                let fits = own.map(|own| own.pending.insert(entry, pending));
                let change = StreamChange::PutPending {
                    group: &name,
                    id: entry,
                    consumer: &consumer,
                    delivered_ms: now_ms,
                    deliveries,
                };
                (change, fits.is_some())
            }
        };
        assert_eq!(forms.apply(&[change]), [fits], "{change:?}");
        for view in forms.views() {
            assert_eq!((view.len(), view.group_count()), (1, model.len()));
            let names = view.groups().map(|group| group.name().to_vec());
            assert!(names.eq(model.keys().cloned()));
            assert!(view.last().is_some_and(|last| last.id == id(1)));
            if let Some(own) = model.get(&name) {
                let group = view.group(&name).expect("it is not damaged");
                let group = group.expect("it is there");
                check_group(&group, &name, own, &mut random);
            }
        }
        forms.compare(&mut random);
        if random.u8(..200) == 0 {
            let names: Vec<Vec<u8>> = model.keys().cloned().collect();
            for name in &names {
                forms.apply(&[StreamChange::RemoveGroup { name }]);
            }
            model.clear();
        }
    }
}

#[test]
fn malformed_logs_are_refused() {
    for log in [
        &[0][..],
        &[6],
        &[17],
        &[7, 1],
        &[7, 1, 0, 2, 1],
        &[9],
        &[13, 1, b'g', 1, b'c', 5],
        &[16, 1, b'g', 0xff, 0xff],
    ] {
        assert_eq!(StreamChange::read(&mut &log[..]), None, "{log:?}");
    }
    // An entry has names and values, and each of them is whole.
    let mut forms = BothForms::new();
    for fields in [&[1, b'f'][..], &[1, b'f', 2, b'v'], &[1, b'f', 1, b'v', 7]] {
        let change = StreamChange::Add { id: id(1), fields };
        assert!(!forms.trees.apply(&change), "{fields:?}");
    }
}
