//! Documents say what the modules say that own the formats.

use std::fs;
use std::path::Path;

/// Every row of the tables in the modules' documentation is in the document.
fn tables_are_in(document: &str, modules: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("../../docs").join(document)).expect("a document");
    let lines: Vec<&str> = document.lines().collect();
    for module in modules {
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
        assert!(found > 4, "{module} has tables");
    }
}

#[test]
fn messages_are_documented() {
    let modules = [
        "codec/mod.rs",
        "codec/roll.rs",
        "../../base/src/codec/mod.rs",
        "../../base/src/codec/ops.rs",
        "../../base/src/codec/replies.rs",
        "../../base/src/codec/versions.rs",
    ];
    tables_are_in("cluster-messages.md", &modules);
}

#[test]
fn the_file_is_documented() {
    tables_are_in("cluster-file.md", &["topology/mod.rs"]);
}
