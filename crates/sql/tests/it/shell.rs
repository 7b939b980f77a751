//! The shell: scripts, formats, commands, errors.

use std::sync::Arc;

use kumiki_sql::shell::{OutputFormat, Shell, run};
use kumiki_sql::{Catalogue, Settings, Shared, Store};
use pages::{Groups, PageSize};

use crate::support::{MemoryStore, tpch};

fn shared() -> Shared {
    let mut store = MemoryStore::new();
    for table in ["nation", "region"] {
        let rows = tpch::rows(table, 0.01);
        store.add(table, &rows, PageSize::default(), &Groups::OneEach);
    }
    let store: Arc<dyn Store> = Arc::new(store);
    Shared::new(Catalogue::new(vec![store]), Settings::default()).unwrap()
}

/// Returns the output of a script, or its error.
fn written(script: &str, format: OutputFormat) -> Result<String, String> {
    let mut out = Vec::new();
    let settings = run::ShellSettings {
        format,
        ..run::ShellSettings::default()
    };
    let mut shell = Shell::new(&shared(), settings, &mut out).unwrap();
    let done = shell.script(script);
    drop(shell);
    let text = String::from_utf8(out).unwrap();
    done.map(|_| text.clone())
        .map_err(|failed| format!("{text}{failed}"))
}

#[test]
fn scripts_write_what_they_ask_for() {
    let script = "select n_name from nation where n_nationkey = 3; -- and\nselect 1 + 1 as two";
    let csv = written(script, OutputFormat::Csv);
    assert_eq!(csv.unwrap(), "n_name\nCANADA\ntwo\n2\n");
    let json = written(
        "select r_regionkey, r_name from region where r_regionkey = 1;",
        OutputFormat::Json,
    );
    assert_eq!(
        json.unwrap(),
        "{\"r_regionkey\":1,\"r_name\":\"AMERICA\"}\n"
    );
    let table = written(
        "select r_name from region order by 1 limit 1;",
        OutputFormat::Table,
    )
    .unwrap();
    assert!(
        table.contains("| AFRICA |") && table.ends_with("(1 row)\n"),
        "{table}"
    );
}

#[test]
fn commands_tell_of_tables() {
    let text = written("\\d\n\\d nation\n", OutputFormat::Table).unwrap();
    assert!(
        text.contains("nation: 25 rows in 4 pages of 128 KiB"),
        "{text}"
    );
    assert!(text.contains("n_nationkey  Int64 not null"), "{text}");
    assert!(text.contains("on memory"), "{text}");
    let quit = written("\\q\nselect 1;", OutputFormat::Csv);
    assert_eq!(quit.unwrap(), "");
    let format = written("\\format csv\nselect 1 as x;", OutputFormat::Table);
    assert_eq!(format.unwrap(), "x\n1\n");
}

#[test]
fn errors_say_what_to_do_and_end_the_script() {
    let error = written(
        "select 1 as x; select * from nowhere; select 2 as y;",
        OutputFormat::Csv,
    );
    let error = error.unwrap_err();
    assert!(error.starts_with("x\n1\n"), "{error}");
    assert!(
        error.contains("nowhere") && error.contains("\\d lists the tables"),
        "{error}"
    );
    let error = written("\\d nowhere", OutputFormat::Table).unwrap_err();
    assert!(error.contains("there is no table nowhere"), "{error}");
}

#[test]
fn what_a_session_makes_is_its_own() {
    let script = "create view small as select * from region where r_regionkey < 2;\n\
                  select count(*) as c from small; drop view small;";
    assert!(
        written(script, OutputFormat::Csv)
            .unwrap()
            .ends_with("c\n2\n")
    );
    let error = written("create view nation as select 1;", OutputFormat::Csv).unwrap_err();
    assert!(error.contains("nation"), "{error}");
}

#[test]
fn plans_are_explained() {
    let text = written(
        "explain select n_name from nation where n_regionkey = 1;",
        OutputFormat::Table,
    );
    let text = text.unwrap();
    assert!(
        text.contains("PagesScan: table=nation v1, filter=(n_regionkey = 1)"),
        "{text}"
    );
    assert!(text.contains("placement=local"), "{text}");
}
