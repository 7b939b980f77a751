//! CSV and Parquet files become tables of pages, with all their rows or not at all.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::prelude::SessionContext;
use disk::RealDisk;
use kumiki_sql::load::{Columns, Csv, Format, Request, load};
use kumiki_sql::{Directory, Session};
use pages::{LoadOptions, Mode, Tables};
use support::{ask, session};

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn pages(&self) -> PathBuf {
        self.dir.path().join("pages")
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn load(&self, files: &[&Path], change: impl FnOnce(&mut Request)) -> Result<u64, String> {
        let tables = Tables::open(Arc::new(RealDisk), &[self.pages()]).unwrap();
        let mut request = Request {
            table: "t".to_owned(),
            files: files.iter().map(|file| file.to_path_buf()).collect(),
            format: Format::Csv(Csv::default()),
            columns: None,
            options: LoadOptions::default(),
            mode: Mode::Create,
        };
        change(&mut request);
        let mut told = 0;
        let table = load(&tables, &request, &mut |progress| told = progress.rows)?;
        assert!(told <= table.rows());
        Ok(table.rows())
    }

    fn session(&self) -> Session {
        let directory = Directory::open(&self.pages()).unwrap();
        session(vec![Arc::new(directory)], 2, true)
    }
}

/// Cells as texts.
fn texts(rows: &support::Rows) -> Vec<Vec<String>> {
    let text = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "NULL".to_owned());
    rows.iter()
        .map(|row| row.iter().map(text).collect())
        .collect()
}

#[test]
fn csv_files_are_loaded_in_their_order_and_more_is_appended() {
    let place = Place::new();
    let one = place.file("b.csv", "n,name\n1,\"a, \"\"b\"\"\"\n2,\n");
    let two = place.file("a.csv", "n,name\n3,ü\n");
    assert_eq!(place.load(&[&one, &two], |_| ()), Ok(3));
    let more = place.file("more.txt", "4|x\n");
    let appended = place.load(&[&more], |request| {
        request.mode = Mode::Append;
        request.format = Format::Csv(Csv {
            header: false,
            delimiter: b'|',
        });
    });
    assert_eq!(appended, Ok(4));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rows = runtime
        .block_on(ask(&place.session(), "select * from t order by n"))
        .unwrap();
    let names = ["a, \"b\"", "NULL", "ü", "x"];
    let expected: Vec<_> = ["1", "2", "3", "4"]
        .into_iter()
        .zip(names)
        .map(|(n, s)| vec![n, s])
        .collect();
    assert_eq!(texts(&rows), expected);
}

#[test]
fn columns_may_be_told() {
    let place = Place::new();
    let file = place.file("t.csv", "id,price\n7,12.5\n");
    let columns: Columns = "id bigint not null, price decimal(15, 2)".parse().unwrap();
    assert_eq!(
        place.load(&[&file], |request| request.columns = Some(columns)),
        Ok(1)
    );
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rows = runtime.block_on(ask(
        &place.session(),
        "select id, price, arrow_typeof(price) from t",
    ));
    assert_eq!(texts(&rows.unwrap()), [["7", "12.50", "Decimal128(15, 2)"]]);
}

#[test]
fn a_load_that_fails_leaves_nothing() {
    let place = Place::new();
    let good = place.file("good.csv", "n\n1\n");
    let other = place.file("other.csv", "n\nword\n");
    let error = place.load(&[&good, &other], |_| ()).unwrap_err();
    assert!(error.contains("other.csv"), "{error}");
    let tables = Tables::open(Arc::new(RealDisk), &[place.pages()]).unwrap();
    assert!(tables.list().is_empty());
    drop(tables);
    assert_eq!(place.load(&[&good], |_| ()), Ok(1));
    let error = place.load(&[&good], |_| ()).unwrap_err();
    assert!(error.contains("already"), "{error}");
    let missing = place.dir.path().join("missing.csv");
    let error = place
        .load(&[&missing], |request| request.mode = Mode::Replace)
        .unwrap_err();
    assert!(error.contains("missing.csv"), "{error}");
}

#[test]
fn parquet_files_are_loaded() {
    let place = Place::new();
    let file = place.dir.path().join("t.parquet");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let context = SessionContext::new();
        let sql = "select value as n, cast(value as varchar) as s, date '1996-01-01' as day, \
                   cast(value as decimal(9, 1)) as d from generate_series(1, 20000)";
        let made = context.sql(sql).await.unwrap();
        let path = file.to_str().unwrap();
        made.write_parquet(path, DataFrameWriteOptions::new(), None)
            .await
            .unwrap();
    });
    assert_eq!(
        place.load(&[&file], |request| request.format = Format::Parquet),
        Ok(20_000)
    );
    let sql = "select sum(n), min(s), max(day), sum(d) from t";
    let rows = runtime.block_on(ask(&place.session(), sql)).unwrap();
    assert_eq!(
        texts(&rows),
        [["200010000", "1", "1996-01-01", "200010000.0"]]
    );
}
