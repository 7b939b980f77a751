//! Loads that are stopped at every one of their disk operations in every way: each exists as a
//! whole or not at all.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use disk::{Crash, Disk, Fault, FaultDisk, FaultKind, OpKind};
use kumiki_pages::tables::{OpenVersion, SegmentFiles};
use kumiki_pages::{Error, LoadOptions, Mode, Page, PageNo, PageSize, Table, Tables, widen};

const CRASHES: [Crash; 4] = [
    Crash::DropAll,
    Crash::KeepPrefix,
    Crash::KeepSectors,
    Crash::KillProcess,
];
const FAULTS: [FaultKind; 4] = [
    FaultKind::PowerOff,
    FaultKind::Io,
    FaultKind::NoSpace,
    FaultKind::ShortWrite,
];

fn dirs() -> Vec<PathBuf> {
    vec!["/data/first".into(), "/data/second".into()]
}

fn open(disk: &FaultDisk) -> Result<Tables, Error> {
    Tables::open(Arc::new(disk.clone()), &dirs())
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("text", DataType::Utf8, true),
    ]))
}

fn batch(from: i64, to: i64) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..to));
    let texts = (from..to).map(|n| (n % 5 > 0).then(|| format!("number {n}")));
    let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
    RecordBatch::try_new(schema(), vec![numbers, texts]).unwrap()
}

/// A step of the script.
#[derive(Clone, Copy, Debug)]
enum Step {
    Load(&'static str, Mode, i64, i64),
    Remove(&'static str),
}

const SCRIPT: [Step; 7] = [
    Step::Load("a", Mode::Create, 0, 3000),
    Step::Load("b", Mode::Create, 0, 10),
    Step::Load("a", Mode::Append, 3000, 3100),
    Step::Load("a", Mode::Replace, 7000, 9000),
    Step::Remove("b"),
    Step::Load("c", Mode::Create, 0, 0),
    Step::Load("a", Mode::Append, 9000, 9001),
];

/// The numbers in tables `a`, `b` and `c`.
type Content = [Option<Vec<i64>>; 3];

fn place(name: &str) -> usize {
    ["a", "b", "c"]
        .iter()
        .position(|&known| known == name)
        .unwrap()
}

fn after(content: &Content, step: Step) -> Content {
    let mut content = content.clone();
    match step {
        Step::Load(name, mode, from, to) => {
            let rows = content[place(name)].take();
            let mut rows = rows.filter(|_| mode == Mode::Append).unwrap_or_default();
            rows.extend(from..to);
            content[place(name)] = Some(rows);
        }
        Step::Remove(name) => content[place(name)] = None,
    }
    content
}

fn run(tables: &Tables, step: Step) -> Result<(), Error> {
    let (name, mode, from, to) = match step {
        Step::Load(name, mode, from, to) => (name, mode, from, to),
        Step::Remove(name) => return tables.remove(name),
    };
    let options = LoadOptions {
        page_size: PageSize::ALL[0],
        ..LoadOptions::default()
    };
    let mut load = tables.load(name, &schema(), &options, mode)?;
    let middle = from.midpoint(to);
    load.push(&batch(from, middle))?;
    load.push(&batch(middle, to))?;
    load.commit()?;
    Ok(())
}

/// Returns the content after the completed steps, and that after the step that was begun, if one
/// failed.
fn play(disk: &FaultDisk) -> (Content, Option<Content>) {
    let mut content = Content::default();
    let Ok(tables) = open(disk) else {
        return (content, None);
    };
    for step in SCRIPT {
        let next = after(&content, step);
        match run(&tables, step) {
            Ok(()) => content = next,
            Err(_) => return (content, Some(next)),
        }
    }
    (content, None)
}

/// Reads a page from the disk that simulates faults, which the operating system does not know.
fn page(table: &Table, files: &SegmentFiles, page: PageNo) -> Page {
    let mut bytes = vec![0; table.page_size.bytes()];
    files.read(page, &mut bytes).unwrap();
    Page::of(table, bytes.into(), files.address(page)).unwrap()
}

fn read(tables: &Tables, name: &str) -> Option<Vec<i64>> {
    let OpenVersion { table, files } = tables.opened(name).ok()?;
    let mut numbers = Vec::new();
    for (segment, files) in table.segments.iter().zip(&files) {
        for entry in &segment.groups[0] {
            let page = page(&table, files, entry.page);
            let array = widen(&page.column(0).unwrap(), &DataType::Int64);
            numbers.extend(array.as_primitive::<Int64Type>().values());
        }
    }
    Some(numbers)
}

fn content(tables: &Tables) -> Content {
    for table in tables.list() {
        let report = tables.check(&table.name, &mut |_| {}).unwrap();
        assert_eq!(report.wrong, [""; 0], "table {}", table.name);
        assert_eq!(report.pages, table.pages());
    }
    ["a", "b", "c"].map(|name| read(tables, name))
}

/// Checks that the files are those of the tables, and no others.
fn assert_tidy(disk: &FaultDisk, tables: &Tables) {
    let listed = dirs().into_iter().flat_map(|dir| {
        let names = disk.list(&dir).unwrap().into_iter();
        names.map(|entry| entry.name.into_string().unwrap())
    });
    let files = listed.filter(|name| name.contains('.')).count();
    let tables = tables.list();
    let wanted = tables.iter().map(|table| 1 + 3 * table.segments.len());
    assert_eq!(files, wanted.sum::<usize>());
}

fn case(fault: Fault, crash: Crash) -> Result<(), String> {
    let disk = FaultDisk::new();
    disk.plan(fault);
    let (done, begun) = play(&disk);
    let disk = disk.crash(crash, fault.nth);
    let tables = open(&disk).map_err(|error| error.to_string())?;
    if let Some((name, damage)) = tables.damaged().pop() {
        return Err(format!("{name}: {damage}"));
    }
    let found = content(&tables);
    if found != done && begun.as_ref() != Some(&found) {
        return Err("neither before nor after".to_owned());
    }
    assert_tidy(&disk, &tables);
    // Content that was found once stays.
    drop(tables);
    let disk = disk.crash(Crash::DropAll, 0);
    let tables = open(&disk).map_err(|error| error.to_string())?;
    if content(&tables) != found {
        return Err("it was found once, and then no more".to_owned());
    }
    let step = Step::Load("a", Mode::Replace, 5, 8);
    run(&tables, step).map_err(|error| error.to_string())?;
    let disk = disk.crash(Crash::DropAll, 0);
    let tables = open(&disk).map_err(|error| error.to_string())?;
    (content(&tables) == after(&found, step))
        .then_some(())
        .ok_or_else(|| "later".to_owned())
}

#[test]
fn loads_are_there_as_a_whole_or_not_at_all() {
    let disk = FaultDisk::new();
    let (done, begun) = play(&disk);
    assert!(begun.is_none() && done[0].as_ref().is_some_and(|rows| rows.len() == 2001));
    let operations = disk.count(OpKind::Change);
    assert!(operations > 60, "{operations} operations");
    let mut wrong = Vec::new();
    for nth in 0..=operations {
        for kind in FAULTS {
            for crash in CRASHES {
                let on = OpKind::Change;
                if let Err(error) = case(Fault { on, nth, kind }, crash) {
                    wrong.push(format!("{kind:?} at {nth}, then {crash:?}: {error}"));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cases, such as {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(5)]
    );
}

/// A reader of a version reads it to its end, and its files are removed afterwards.
#[test]
fn readers_keep_their_version() {
    let disk = FaultDisk::new();
    let tables = open(&disk).unwrap();
    run(&tables, SCRIPT[0]).unwrap();
    let old = tables.opened("a").unwrap();
    run(&tables, SCRIPT[3]).unwrap();
    let id = old.files[0].id();
    for entry in &old.table.segments[0].groups[0] {
        let files = tables.segment(id).expect("it is used");
        page(&old.table, &files, entry.page);
    }
    let files = || {
        let files = dirs().into_iter().map(|dir| disk.list(&dir).unwrap().len());
        files.sum::<usize>()
    };
    let before = files();
    drop(old);
    assert_eq!(files(), before - 3);
    assert!(tables.segment(id).is_none(), "it is free");
    assert_tidy(&disk, &tables);
}

#[test]
fn a_load_that_is_dropped_leaves_nothing() {
    let disk = FaultDisk::new();
    let tables = open(&disk).unwrap();
    let options = LoadOptions::default();
    let mut load = tables.load("a", &schema(), &options, Mode::Create).unwrap();
    load.push(&batch(0, 100_000)).unwrap();
    assert!(load.bytes() > 0);
    drop(load);
    assert_tidy(&disk, &tables);
    assert!(matches!(tables.table("a"), Err(Error::Unknown { .. })));
    // Only one process at a time may write; others may read.
    let second = open(&disk).err().expect("the directory is open");
    assert!(matches!(second, Error::Lock(_)));
    let text = second.to_string();
    assert!(text.contains("is open in this process already"), "{text}");
    run(&tables, SCRIPT[0]).unwrap();
    let reader = Tables::open_read_only(Arc::new(disk.clone()), &dirs()).unwrap();
    assert_eq!(read(&reader, "a").map(|rows| rows.len()), Some(3000));
    assert!(matches!(reader.remove("a"), Err(Error::ReadOnly)));
    run(&tables, Step::Load("a", Mode::Create, 0, 1)).unwrap_err();
    run(&tables, Step::Load("b", Mode::Append, 0, 1)).unwrap_err();
    let error = run(&tables, Step::Load("no good", Mode::Create, 0, 1)).unwrap_err();
    assert!(matches!(error, Error::BadName(_)));
}

/// A flipped byte is found in every place of a file.
#[test]
fn damage_is_found() {
    let disk = FaultDisk::new();
    let tables = open(&disk).unwrap();
    run(&tables, Step::Load("a", Mode::Create, 0, 3000)).unwrap();
    drop(tables);
    let mut rng = fastrand::Rng::with_seed(3);
    for dir in dirs() {
        for entry in disk.list(&dir).unwrap() {
            let path = dir.join(&entry.name);
            let name = entry.name.to_str().unwrap();
            if name.contains('.') {
                for _ in 0..40 {
                    assert_flip_is_found(&disk.crash(Crash::KillProcess, 0), &path, &mut rng);
                }
            }
        }
    }
}

fn assert_flip_is_found(disk: &FaultDisk, path: &Path, rng: &mut fastrand::Rng) {
    let file = disk.open(path, disk::Access::ReadWrite).unwrap();
    let size = file.size().unwrap();
    if rng.u8(..8) == 0 {
        file.set_size(rng.u64(..size)).unwrap();
    } else {
        let (at, mut byte) = (rng.u64(..size), [0]);
        file.read_at(&mut byte, at).unwrap();
        byte[0] ^= 1 << rng.u8(..8);
        file.write_all_at(&[std::io::IoSlice::new(&byte)], at)
            .unwrap();
    }
    let tables = open(disk).unwrap();
    if let Some((name, what)) = tables.damaged().pop() {
        assert_eq!(name, "a");
        assert!(tables.table("a").unwrap_err().to_string().contains(&what));
        // A damaged table keeps its files until it is removed.
        tables.remove("a").unwrap();
        drop(tables);
        assert_tidy(disk, &open(disk).unwrap());
        return;
    }
    let report = tables.check("a", &mut |_| {}).unwrap();
    let place = path.file_name().unwrap().to_str().unwrap();
    assert!(
        report.wrong.len() == 1 && report.wrong[0].contains(place),
        "{report:?}"
    );
}

#[test]
fn directories_belong_together() {
    let disk = FaultDisk::new();
    let shared = || Arc::new(disk.clone()) as Arc<dyn Disk>;
    drop(open(&disk).unwrap());
    let said = |dirs: &[&str]| {
        let dirs: Vec<PathBuf> = dirs.iter().map(PathBuf::from).collect();
        Tables::open(shared(), &dirs)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    assert!(
        said(&["/data/second"])
            .unwrap_err()
            .contains("first one first")
    );
    said(&["/data/other"]).unwrap();
    assert!(
        said(&["/data/first", "/data/other"])
            .unwrap_err()
            .contains("belongs to other")
    );
    said(&["/data/first", "/data/third", "/data/second"]).unwrap();
    let missing = Tables::open_read_only(shared(), &["/data".into()]);
    assert!(
        missing
            .map(|_| ())
            .unwrap_err()
            .to_string()
            .contains("no tables in /data")
    );
}
