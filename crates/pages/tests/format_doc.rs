//! `docs/pages-format.md` says what the modules say that own the formats.

use std::fs;
use std::path::Path;

#[test]
fn the_tables_of_the_modules_are_in_the_documentation() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let doc = fs::read_to_string(root.join("../../docs/pages-format.md")).expect("the document");
    let lines: Vec<&str> = doc.lines().collect();
    for module in [
        "block.rs",
        "directory.rs",
        "entry.rs",
        "kind.rs",
        "manifest.rs",
        "page.rs",
        "row.rs",
        "tables/files.rs",
    ] {
        let source = fs::read_to_string(root.join("src").join(module)).expect("a module");
        let rows = source
            .lines()
            .filter_map(|line| line.strip_prefix("//! "))
            .filter(|line| line.starts_with('|'));
        let mut found = 0;
        for row in rows {
            assert!(lines.contains(&row), "{module} has a row more: {row}");
            found += 1;
        }
        assert!(found > 5, "{module} has tables");
    }
}
