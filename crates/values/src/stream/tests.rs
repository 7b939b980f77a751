use super::*;

type Entry = (EntryId, Vec<Vec<u8>>);

fn id(number: u64) -> EntryId {
    EntryId {
        ms: number / 3,
        number: number % 3,
    }
}

fn owned(entry: StreamEntry<'_>) -> Entry {
    (entry.id, entry.fields().map(<[u8]>::to_vec).collect())
}

fn check(bytes: &[u8], model: &[Entry], random: &mut fastrand::Rng) {
    let view = StreamView::new(bytes);
    assert_eq!(view.len(), model.len());
    assert_eq!(view.first().map(owned).as_ref(), model.first());
    assert_eq!(view.last().map(owned).as_ref(), model.last());
    let highest = model.last().map_or(1, |last| last.0.ms * 3 + 3);
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
    let own = model.iter().find(|entry| entry.0 == start);
    assert_eq!(view.get(start).map(owned).as_ref(), own);
    let in_nodes: usize = view.nodes().map(|node| usize::from(node.len)).sum();
    assert_eq!(in_nodes, model.len());
}

/// Random changes, beside a vector.
#[test]
fn a_stream_is_what_was_done_to_it() {
    let mut random = fastrand::Rng::with_seed(7);
    let (mut model, mut bytes): (Vec<Entry>, Vec<u8>) = (Vec::new(), Vec::new());
    let (mut last, mut added, mut longest) = (0, 0, 0);
    for round in 0..3000 {
        let mut stream = StreamEditor::new(&bytes);
        for _ in 0..random.usize(1..4) {
            match random.u8(..12) {
                0..2 if !model.is_empty() => {
                    let at = random.usize(..model.len());
                    let gone = model[at].0;
                    assert!(stream.delete(gone));
                    assert!(!stream.delete(gone) && !stream.delete(EntryId::MAX));
                    model.remove(at);
                }
                2 if random.u8(..16) == 0 => {
                    let trim = StreamTrim {
                        goal: TrimGoal::Length(random.usize(100..600)),
                        approximate: random.bool(),
                        limit: [50, 1000][usize::from(random.bool())],
                    };
                    let removed = stream.trim(&trim);
                    assert!(removed <= trim.limit);
                    model.drain(..removed);
                }
                3 if random.u8(..32) == 0 && !model.is_empty() => {
                    let from = model[random.usize(..=model.len() / 2)].0;
                    let removed = stream.trim(&StreamTrim {
                        goal: TrimGoal::From(from),
                        approximate: false,
                        limit: usize::MAX,
                    });
                    assert_eq!(model[removed].0, from);
                    model.drain(..removed);
                }
                _ => {
                    last += random.u64(1..5);
                    added += 1;
                    let mut field = || vec![random.u8(..); random.usize(..90)];
                    let fields: Vec<Vec<u8>> = (0..2 + 2 * (round % 2)).map(|_| field()).collect();
                    let borrowed: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
                    stream.append(id(last), &borrowed);
                    model.push((id(last), fields));
                }
            }
        }
        assert_eq!(
            (stream.view().last_id(), stream.view().added()),
            (id(last), added)
        );
        if let Some(changed) = stream.into_changed() {
            bytes = changed;
        }
        check(&bytes, &model, &mut random);
        longest = longest.max(model.len());
    }
    assert!(longest > 300, "it had at most {longest} entries");
}

#[test]
fn trims_remove_whole_nodes_if_they_are_approximate() {
    let mut stream = StreamEditor::new(b"");
    for number in 1..=1001 {
        stream.append(id(number), &[b"f", b"v"]);
    }
    let trim = |stream: &mut StreamEditor<'_>, length, limit| {
        stream.trim(&StreamTrim {
            goal: TrimGoal::Length(length),
            approximate: true,
            limit,
        })
    };
    assert_eq!(trim(&mut stream, 555, 1000), 400);
    assert_eq!(trim(&mut stream, 300, 99), 0);
    assert_eq!(trim(&mut stream, 300, 250), 200);
    assert_eq!(stream.view().len(), 401);
    // Deleted entries take their places in a node.
    assert!((602..=650).all(|number| stream.delete(id(number))));
    assert_eq!(trim(&mut stream, 301, 1000), 51);
    assert_eq!(stream.view().nodes().count(), 4);
}

/// Random changes of groups, beside maps.
#[test]
fn groups_are_what_was_done_to_them() {
    use std::collections::BTreeMap;
    type Pending = BTreeMap<u64, (Vec<u8>, u64)>;
    let mut random = fastrand::Rng::with_seed(9);
    let mut model: BTreeMap<Vec<u8>, (Vec<Vec<u8>>, Pending)> = BTreeMap::new();
    let mut stream = StreamEditor::new(b"");
    stream.append(id(1), &[b"f", b"v"]);
    let mut bytes = stream.into_changed().expect("it has an entry");
    for now_ms in 0..4000 {
        let name = vec![b'a' + random.u8(..5); random.usize(..200)];
        let consumer = vec![b'k' + random.u8(..5)];
        let entry = random.u64(..20);
        let before = bytes.clone();
        let own = StreamView::new(&before)
            .group(&name)
            .expect("it is not damaged");
        let mut group = own.unwrap_or(ConsumerGroup::new(&name, id(now_ms)));
        let (consumers, pending) = model.entry(name.clone()).or_default();
        match random.u8(..8) {
            0 => {
                let gone = pending.extract_if(.., |_, own| own.0 == consumer).count();
                let there = consumers.contains(&consumer);
                consumers.retain(|own| *own != consumer);
                assert_eq!(group.remove_consumer(&consumer), there.then_some(gone));
            }
            1 => {
                let there = pending.remove(&entry).is_some();
                assert_eq!(group.remove_pending(id(entry)), there);
            }
            2 if random.u8(..4) == 0 => {
                model.remove(&name);
                let mut stream = StreamEditor::new(&bytes);
                stream.remove_group(&name);
                bytes = stream.into_changed().unwrap_or(bytes);
                continue;
            }
            _ => {
                let (at, created) = group.consumer_or_new(&consumer, now_ms);
                assert_eq!(created, !consumers.contains(&consumer));
                if created {
                    consumers.push(consumer.clone());
                }
                group.deliver(id(entry), at, now_ms);
                pending.insert(entry, (consumer.clone(), now_ms));
            }
        }
        let mut stream = StreamEditor::new(&bytes);
        stream.put_group(&group);
        bytes = stream.into_changed().expect("a group was put");
        let view = StreamView::new(&bytes);
        let again = view
            .group(&name)
            .expect("it is not damaged")
            .expect("it was put");
        assert_eq!(
            again,
            ConsumerGroup {
                changed: false,
                ..group
            }
        );
        let (consumers, pending) = &model[&name];
        let shown = again.pending.iter().map(|entry| {
            let name = again.consumers[entry.consumer].name.to_vec();
            (entry.id, (name, entry.delivered_ms))
        });
        let expected = pending
            .iter()
            .map(|(number, own)| (id(*number), own.clone()));
        assert!(shown.eq(expected));
        assert_eq!(again.consumers.len(), consumers.len());
        assert!(view.groups().map(|group| group.name).eq(model.keys()));
        assert_eq!((view.len(), view.group_count()), (1, model.len()));
        assert!(view.last().is_some_and(|last| last.id == id(1)));
    }
}
