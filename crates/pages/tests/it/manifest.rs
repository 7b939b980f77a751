//! Tables in their encoded form.

use std::sync::Arc;

use fastrand::Rng;
use kumiki_pages::{Groups, Memory, PageSize, Shape, Table};

fn table(rng: &mut Rng) -> Table {
    let columns = rng.usize(1..8);
    let schema = crate::support::schema(rng, columns);
    let groups = if rng.bool() {
        Groups::OneEach
    } else {
        Groups::Together
    };
    let groups = groups.resolve(&schema).unwrap();
    let shape = Shape::new(schema.clone(), PageSize::ALL[rng.usize(..6)], groups, None);
    let segments: Vec<_> = (0..rng.usize(..3))
        .map(|_| vec![crate::support::batch(rng, &schema, 300)])
        .collect();
    let segments = segments.iter().map(Vec::as_slice);
    let table = Memory::new().table("t", &shape.unwrap(), segments);
    (*table.unwrap()).clone()
}

#[test]
fn tables_travel() {
    for seed in 0..50 {
        let mut rng = Rng::with_seed(seed);
        let table = table(&mut rng);
        let bytes = table.encode();
        let found = Table::decode(&bytes).unwrap();
        assert_eq!(format!("{found:?}"), format!("{table:?}"));
        for _ in 0..30 {
            let mut wrong = bytes.clone();
            wrong[rng.usize(..bytes.len())] ^= 1 << rng.u8(..8);
            Table::decode(&wrong).unwrap_err();
        }
        Table::decode(&bytes[..rng.usize(..bytes.len())]).unwrap_err();
    }
}

/// Readers name segments by numbers of 16 bits.
#[test]
fn a_table_has_as_many_segments_as_can_be_named() {
    let mut rng = Rng::with_seed(1);
    let schema = crate::support::schema(&mut rng, 1);
    let groups = Groups::OneEach.resolve(&schema).unwrap();
    let shape = Shape::new(schema.clone(), PageSize::default(), groups, None).unwrap();
    let rows = [crate::support::batch(&mut rng, &schema, 3)];
    let table = Memory::new().table("t", &shape, [&rows[..]]).unwrap();
    let mut table = (*table).clone();
    let segment = Arc::clone(&table.segments[0]);
    table.segments = vec![segment; 65_535];
    let most = Table::decode(&table.encode()).unwrap();
    assert_eq!(most.segments.len(), 65_535);
    table.segments.push(Arc::clone(&most.segments[0]));
    let error = Table::decode(&table.encode()).unwrap_err().to_string();
    assert!(error.contains("65536 segments"), "{error}");
}
