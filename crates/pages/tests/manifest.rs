//! Tables as they travel.

mod support;

use fastrand::Rng;
use kumiki_pages::{Groups, Memory, PageSize, Shape, Table};

fn table(rng: &mut Rng) -> Table {
    let columns = rng.usize(1..8);
    let schema = support::schema(rng, columns);
    let groups = if rng.bool() {
        Groups::OneEach
    } else {
        Groups::Together
    };
    let groups = groups.resolve(&schema).unwrap();
    let shape = Shape::new(schema.clone(), PageSize::ALL[rng.usize(..6)], groups, None);
    let segments: Vec<_> = (0..rng.usize(..3))
        .map(|_| vec![support::batch(rng, &schema, 300)])
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
