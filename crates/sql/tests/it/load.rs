//! CSV and Parquet files become tables of pages, with all their rows or not at all: in a directory, at a
//! storage node, at two of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::parquet::data_type::{Int96, Int96Type};
use datafusion::parquet::file::writer::SerializedFileWriter;
use datafusion::parquet::schema::parser::parse_message_type;
use datafusion::prelude::SessionContext;
use disk::RealDisk;
use kumiki_sql::load::{Csv, FileFormat, LoadColumns, LoadRequest, load};
use kumiki_sql::{Directory, Session, StorageNode, Store};
use pages::node::Node;
use pages::remote::Replicas;
use pages::{LoadOptions, Mode, Table, TableStore, Tables};

use crate::support::node::{far, far_options, serve};
use crate::support::{ask, session};

/// The table store into which files are loaded.
struct LoadTarget {
    dir: tempfile::TempDir,
    nodes: Vec<Node>,
}

impl LoadTarget {
    /// Makes a directory, or so many nodes.
    fn new(nodes: usize) -> LoadTarget {
        let dir = tempfile::tempdir().unwrap();
        let nodes = (0..nodes).map(|node| serve(&dir.path().join(format!("node-{node}"))));
        LoadTarget {
            nodes: nodes.collect(),
            dir,
        }
    }

    fn all() -> [LoadTarget; 3] {
        [LoadTarget::new(0), LoadTarget::new(1), LoadTarget::new(2)]
    }

    fn pages(&self) -> PathBuf {
        self.dir.path().join("pages")
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn depot(&self) -> Box<dyn TableStore> {
        match &self.nodes[..] {
            [] => Box::new(Tables::open(Arc::new(RealDisk), &[self.pages()]).unwrap()),
            [node] => Box::new(far(node)),
            nodes => Box::new(Replicas::new(nodes.iter().map(far).collect())),
        }
    }

    /// Returns the table, if there is one.
    fn table(&self) -> Option<Arc<Table>> {
        self.depot().table("t").unwrap()
    }

    fn load(&self, files: &[&Path], change: impl FnOnce(&mut LoadRequest)) -> Result<u64, String> {
        let mut request = LoadRequest {
            table: "t".to_owned(),
            files: files.iter().map(|file| file.to_path_buf()).collect(),
            format: FileFormat::Csv(Csv::default()),
            columns: None,
            sort_by: None,
            options: LoadOptions::default(),
            mode: Mode::Create,
        };
        change(&mut request);
        let mut told = 0;
        let table = load(&*self.depot(), &request, &mut |rows| told = rows);
        let table = table.map_err(|error| error.to_string())?;
        let loaded = table.segments.last().map_or(0, |segment| segment.rows);
        assert_eq!(told, loaded, "progress is told to the end");
        Ok(table.rows())
    }

    fn session(&self) -> Session {
        let node = |node| Arc::new(StorageNode::new(far_options(node))) as Arc<dyn Store>;
        let mut stores: Vec<_> = self.nodes.iter().map(node).collect();
        if stores.is_empty() {
            stores.push(Arc::new(Directory::open(&self.pages()).unwrap()));
        }
        session(stores, 2, true)
    }

    fn ask(&self, sql: &str) -> Vec<Vec<String>> {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        texts(&runtime.block_on(ask(&self.session(), sql)).unwrap())
    }
}

/// Returns cells as texts.
fn texts(rows: &crate::support::Rows) -> Vec<Vec<String>> {
    let text = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "NULL".to_owned());
    rows.iter()
        .map(|row| row.iter().map(text).collect())
        .collect()
}

#[test]
fn csv_files_are_loaded_in_their_order_and_more_is_appended() {
    for place in LoadTarget::all() {
        let one = place.file("b.csv", "n,name\n1,\"a, \"\"b\"\"\"\n2,\n");
        let two = place.file("a.csv", "n,name\n3,ü\n");
        assert_eq!(place.load(&[&one, &two], |_| ()), Ok(3));
        let more = place.file("more.txt", "4|x\n");
        let appended = place.load(&[&more], |request| {
            request.mode = Mode::Append;
            request.format = FileFormat::Csv(Csv {
                header: false,
                delimiter: b'|',
                null: None,
            });
        });
        assert_eq!(appended, Ok(4));
        let rows = place.ask("select * from t order by n");
        let names = ["a, \"b\"", "", "ü", "x"];
        let expected: Vec<_> = ["1", "2", "3", "4"]
            .into_iter()
            .zip(names)
            .map(|(n, s)| vec![n, s])
            .collect();
        assert_eq!(rows, expected);
    }
}

#[test]
fn empty_values_are_texts_and_null_by_option() {
    let place = LoadTarget::new(0);
    let file = place.file("t.csv", "a,b,n\n\"\",x,1\nNA,,2\n(*),NA,\n");
    let load = |null: Option<&str>, columns: &str| {
        let columns: LoadColumns = columns.parse().unwrap();
        let loaded = place.load(&[&file], |request| {
            request.mode = Mode::Replace;
            request.columns = Some(columns);
            request.format = FileFormat::Csv(Csv {
                null: null.map(str::to_owned),
                ..Csv::default()
            });
        });
        loaded.map(|_| place.ask("select a, b, n from t"))
    };
    let texts = "a varchar not null, b varchar, n varchar";
    let numbers = "a varchar not null, b varchar, n bigint";
    assert_eq!(
        load(None, numbers).unwrap(),
        [["", "x", "1"], ["NA", "", "2"], ["(*)", "NA", "NULL"]]
    );
    let nullable = "a varchar, b varchar, n bigint";
    assert_eq!(
        load(Some(""), nullable).unwrap(),
        [
            ["NULL", "x", "1"],
            ["NA", "NULL", "2"],
            ["(*)", "NA", "NULL"]
        ]
    );
    assert_eq!(
        load(Some("(*)"), &texts.replace(" not null", "")).unwrap(),
        [["", "x", "1"], ["NA", "", "2"], ["NULL", "NA", ""]]
    );
    // Columns that are not nullable have no nulls, and an empty value is no number.
    for (null, columns) in [("", numbers), ("NA", numbers), ("NA", nullable)] {
        let error = load(Some(null), columns).unwrap_err();
        assert!(error.contains("t.csv"), "{error}");
    }
}

#[test]
fn columns_may_be_told() {
    for place in LoadTarget::all() {
        let file = place.file("t.csv", "id,price\n7,12.5\n");
        let columns: LoadColumns = "id bigint not null, price decimal(15, 2)".parse().unwrap();
        assert_eq!(
            place.load(&[&file], |request| request.columns = Some(columns)),
            Ok(1)
        );
        let rows = place.ask("select id, price, arrow_typeof(price) from t");
        assert_eq!(rows, [["7", "12.50", "Decimal128(15, 2)"]]);
    }
}

#[test]
fn columns_are_found_by_their_names() {
    let place = LoadTarget::new(0);
    let one = place.file("one.csv", "a,b\n1,x\n");
    let turned = place.file("turned.csv", "b,a\ny,2\n");
    assert_eq!(place.load(&[&one, &turned], |_| ()), Ok(2));
    let append = |request: &mut LoadRequest| request.mode = Mode::Append;
    assert_eq!(place.load(&[&turned], append), Ok(3));
    let rows = place.ask("select a, b from t order by a, b");
    assert_eq!(rows, [["1", "x"], ["2", "y"], ["2", "y"]]);
    let other = place.file("other.csv", "a,c\n1,x\n");
    let error = place.load(&[&other], append).unwrap_err();
    assert!(
        error.contains("other.csv: it has columns a, c, and not a, b"),
        "{error}"
    );
    let narrow = place.file("narrow.csv", "a\n1\n");
    let error = place.load(&[&narrow], append).unwrap_err();
    assert!(error.contains("narrow.csv"), "{error}");
    assert_eq!(place.table().unwrap().rows(), 3);
}

#[test]
fn rows_are_sorted_over_all_files() {
    for place in [LoadTarget::new(0), LoadTarget::new(1)] {
        let one = place.file("one.csv", "n\n5\n1\n3\n");
        let two = place.file("two.csv", "n\n4\n2\n");
        let loaded = place.load(&[&one, &two], |request| {
            request.sort_by = Some("n".to_owned());
        });
        assert_eq!(loaded, Ok(5));
        // One partition yields rows in their stored order.
        let rows = place.ask("select n from t limit 5");
        assert_eq!(rows.concat(), ["1", "2", "3", "4", "5"]);
        let error = place.load(&[&one], |request| {
            request.mode = Mode::Replace;
            request.sort_by = Some("m".to_owned());
        });
        assert!(error.unwrap_err().contains("no column \"m\""));
    }
}

#[test]
fn a_load_that_fails_leaves_nothing() {
    for place in LoadTarget::all() {
        let good = place.file("good.csv", "n\n1\n");
        let other = place.file("other.csv", "n\nword\n");
        let error = place.load(&[&good, &other], |_| ()).unwrap_err();
        assert!(error.contains("other.csv"), "{error}");
        assert!(place.table().is_none());
        assert_eq!(place.load(&[&good], |_| ()), Ok(1));
        let error = place.load(&[&good], |_| ()).unwrap_err();
        assert!(error.contains("already"), "{error}");
        let missing = place.dir.path().join("missing.csv");
        let error = place
            .load(&[&missing], |request| request.mode = Mode::Replace)
            .unwrap_err();
        assert!(error.contains("missing.csv"), "{error}");
        let error = place.load(&[&good], |request| {
            request.table = "nowhere".to_owned();
            request.mode = Mode::Append;
        });
        let error = error.unwrap_err();
        assert!(error.contains("there is no table nowhere"), "{error}");
        let table = place.table().unwrap();
        assert_eq!((table.rows(), table.version.0), (1, 1));
    }
}

#[test]
fn a_value_that_does_not_fit_is_an_error_and_no_null() {
    let place = LoadTarget::new(1);
    let small = place.file("small.csv", "n\n1\n");
    let columns: LoadColumns = "n smallint".parse().unwrap();
    place
        .load(&[&small], |request| request.columns = Some(columns))
        .unwrap();
    let append = |request: &mut LoadRequest| request.mode = Mode::Append;
    let large = place.file("large.csv", "n\n70000\n");
    let error = place.load(&[&large], append).unwrap_err();
    assert!(error.contains("large.csv"), "{error}");
    let file = place.dir.path().join("large.parquet");
    parquet("select 70000 as n", &file);
    let error = place.load(&[&file], |request| {
        append(request);
        request.format = FileFormat::Parquet;
    });
    let error = error.unwrap_err();
    assert!(
        error.contains("column n") && error.contains("70000"),
        "{error}"
    );
    // A value that would be changed there does not fit either.
    for (number, shown) in [("1.5::double", "1.5"), ("1.5::decimal(5, 2)", "1.50")] {
        let file = place.dir.path().join("half.parquet");
        parquet(&format!("select {number} as n"), &file);
        let error = place.load(&[&file], |request| {
            append(request);
            request.format = FileFormat::Parquet;
        });
        let error = error.unwrap_err();
        assert!(
            error.contains("column n") && error.contains(shown),
            "{error}"
        );
    }
    let null = place.file("null.csv", "n,m\n,1\n");
    let columns: LoadColumns = "n smallint not null, m int".parse().unwrap();
    let error = place.load(&[&null], |request| {
        request.mode = Mode::Replace;
        request.columns = Some(columns);
    });
    assert!(error.unwrap_err().contains("null.csv"));
    assert_eq!(place.ask("select * from t"), [["1"]]);
    let whole = place.dir.path().join("whole.parquet");
    parquet(
        "select * from (values (-0.0::double), (2.0), (null)) as v(n)",
        &whole,
    );
    place
        .load(&[&whole], |request| {
            append(request);
            request.format = FileFormat::Parquet;
        })
        .unwrap();
    assert_eq!(place.ask("select sum(n), count(*) from t"), [["3", "4"]]);
}

/// If a node is lost in the middle of a load, the other one has none of its rows.
#[test]
fn a_node_that_is_lost_in_the_middle_leaves_no_table() {
    let mut place = LoadTarget::new(2);
    let file = place.file("rows.csv", &format!("n\n{}", "12345\n".repeat(100_000)));
    let lost = place.nodes.pop().unwrap();
    let address = lost.address().to_string();
    let depot = Replicas::new(vec![far(&place.nodes[0]), far(&lost)]);
    let request = LoadRequest {
        table: "t".to_owned(),
        files: vec![file],
        format: FileFormat::Csv(Csv::default()),
        columns: None,
        sort_by: None,
        options: LoadOptions::default(),
        mode: Mode::Create,
    };
    let mut lost = Some(lost);
    let loaded = load(&depot, &request, &mut |rows| {
        if let Some(node) = lost.take_if(|_| rows > 50_000) {
            node.stop().unwrap();
        }
    });
    let error = loaded.unwrap_err().to_string();
    assert!(error.contains(&address), "{error}");
    assert!(lost.is_none(), "it was stopped in the middle");
    assert!(place.table().is_none());
}

/// Writes the result of a query.
fn parquet(sql: &str, file: &Path) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let made = SessionContext::new().sql(sql).await.unwrap();
        let path = file.to_str().unwrap();
        made.write_parquet(path, DataFrameWriteOptions::new(), None)
            .await
            .unwrap();
    });
}

#[test]
fn parquet_files_are_loaded() {
    for place in LoadTarget::all() {
        let file = place.dir.path().join("t.parquet");
        parquet(
            "select value as n, cast(value as varchar) as s, date '1996-01-01' as day, \
             cast(value as decimal(9, 1)) as d from generate_series(1, 20000)",
            &file,
        );
        assert_eq!(
            place.load(&[&file], |request| request.format = FileFormat::Parquet),
            Ok(20_000)
        );
        let rows = place.ask("select sum(n), min(s), max(day), sum(d) from t");
        assert_eq!(rows, [["200010000", "1", "1996-01-01", "200010000.0"]]);
    }
}

/// A view and a prepared statement keep their plans, but read the newest versions of tables.
#[test]
fn plans_that_are_kept_are_of_the_newest_version() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for place in LoadTarget::all() {
        let one = place.file("one.csv", "n\n1\n");
        place.load(&[&one], |_| ()).unwrap();
        let session = place.session();
        let ask = |sql: &str| runtime.block_on(ask(&session, sql));
        ask("create view v as select n + 0 as n from t where n < 10").unwrap();
        ask("create view w as select n from v where n in (select n from t)").unwrap();
        ask("prepare p(bigint) as select count(*) from w where n > $1").unwrap();
        let kept = [
            "select count(*) from v",
            "select count(*) from w",
            "execute p(0)",
        ];
        let all = || kept.map(|sql| ask(sql).map(|rows| texts(&rows).concat()));
        let both = "select (select count(*) from t) as a, (select count(*) from w) as b, \
                    (select count(*) from t join v using (n)) as c";
        assert_eq!(
            all(),
            ["1", "1", "1"].map(|count| Ok(vec![count.to_owned()]))
        );

        let two = place.file("two.csv", "n\n2\n");
        place
            .load(&[&two], |request| request.mode = Mode::Append)
            .unwrap();
        assert_eq!(
            all(),
            ["2", "2", "2"].map(|count| Ok(vec![count.to_owned()]))
        );
        assert_eq!(texts(&ask(both).unwrap()), [["2", "2", "2"]]);

        let other = place.file("other.csv", "m,n\n1,7\n");
        place
            .load(&[&other], |request| request.mode = Mode::Replace)
            .unwrap();
        for refused in all() {
            let error = refused.unwrap_err();
            assert!(error.contains("table t has other columns"), "{error}");
        }
        assert_eq!(texts(&ask("select n from t").unwrap()), [["7"]]);
        place
            .load(&[&one], |request| request.mode = Mode::Replace)
            .unwrap();
        assert_eq!(
            all(),
            ["1", "1", "1"].map(|count| Ok(vec![count.to_owned()]))
        );
        place.depot().remove("t").unwrap();
        for refused in all() {
            let error = refused.unwrap_err();
            assert!(error.contains("'t' not found"), "{error}");
        }
    }
}

#[test]
fn columns_of_parquet_files_may_be_left_out() {
    for place in LoadTarget::all() {
        let file = place.dir.path().join("nested.parquet");
        parquet("select 1 as id, [1, 2] as list, 'a' as name", &file);
        let refused = place.load(&[&file], |request| request.format = FileFormat::Parquet);
        assert!(refused.unwrap_err().contains("list"));
        let columns = "name varchar, id int";
        let loaded = place.load(&[&file], |request| {
            request.format = FileFormat::Parquet;
            request.columns = Some(columns.parse().unwrap());
        });
        assert_eq!(loaded, Ok(1));
        assert_eq!(place.ask("select id, name from t"), [["1", "a"]]);
        let refused = place.load(&[&file], |request| {
            request.format = FileFormat::Parquet;
            request.columns = Some("id int, nothing int".parse().unwrap());
            request.mode = Mode::Replace;
        });
        assert!(refused.unwrap_err().contains("nothing"));
    }
}

/// Writes timestamps as Parquet's old type of 96 bits: nanoseconds of a day, and its Julian number.
fn int96(values: &[(u64, u32)], file: &Path) {
    let schema = parse_message_type("message m { required int96 t; }").unwrap();
    let file = std::fs::File::create(file).unwrap();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let values = values.iter().map(|&(nanos, day)| {
        let mut value = Int96::new();
        value.set_data(nanos as u32, (nanos >> 32) as u32, day);
        value
    });
    let values: Vec<Int96> = values.collect();
    column
        .typed::<Int96Type>()
        .write_batch(&values, None, None)
        .unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn timestamps_of_parquet_s_old_type_reach_beyond_nanoseconds() {
    let place = LoadTarget::new(0);
    let file = place.dir.path().join("old.parquet");
    // 9999-12-31 and 1500-01-01, at a quarter past midnight.
    let quarter = 900_000_000_000;
    int96(&[(quarter, 5_373_484), (quarter, 2_268_924)], &file);
    let loaded = place.load(&[&file], |request| request.format = FileFormat::Parquet);
    assert_eq!(loaded, Ok(2));
    assert_eq!(
        place.ask("select t from t order by t"),
        [["1500-01-01T00:15:00"], ["9999-12-31T00:15:00"]]
    );
}
