//! The document says what the modules say that own the formats.

use std::fs;
use std::path::Path;

#[test]
fn the_tables_of_the_modules_are_in_the_documentation() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = root.join("../../docs/replica-log.md");
    let document = fs::read_to_string(document).expect("the document");
    let lines: Vec<&str> = document.lines().collect();
    for module in [
        "log/format.rs",
        "log/record.rs",
        "snapshot/format.rs",
        "wire/message.rs",
        "wire/payload.rs",
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
