//! Tasks that are no longer wanted end soon, and with an error, even if they have no result yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_schema::DataType;
use disk::RealDisk;
use fabric::tcp::Transport;
use fastrand::Rng;
use kumiki_operators::{
    Aggregate, Cancellation, Expr, Fragment, FragmentTask, FragmentWork, Function, LocalSite,
    Operator, RemoteSite, Scalar, Site, SortKey, TaskError, Value, scan,
};
use pages::node::Node;
use pages::remote::RemoteNode;
use pages::{
    Groups, LoadOptions, Local, LocalOptions, Memory, Mode, PageAddress, PageSize, PageStream,
    Shape, Source, Table, Tables,
};

use crate::reference::storage;
use crate::storage_node;
use testkit::SetOnDrop;

const ROWS: i128 = 100_000;
/// Rows that are worked on at once.
const VECTOR: usize = 2048;
/// Far longer than any step takes here, and far shorter than a scan of slow pages.
const SOON: Duration = Duration::from_secs(10);

fn column(place: usize) -> Expr {
    Expr::Column(place)
}

fn literal(value: i128) -> Expr {
    Expr::Literal(Scalar {
        data_type: DataType::Int64,
        value: Value::Int(value),
    })
}

fn binary(left: Expr, operator: Operator, right: Expr) -> Expr {
    Expr::Binary(Box::new(left), operator, Box::new(right))
}

/// Numbers from 0 on, and others between 0 and 9.
fn batches() -> Vec<RecordBatch> {
    let types = [DataType::Int64, DataType::Int64];
    let row = |n| vec![Value::Int(n), Value::Int(n % 10)];
    let rows: Vec<Vec<Value>> = (0..ROWS).map(row).collect();
    storage::plain(&mut Rng::with_seed(0), &rows, &types)
}

fn aggregate(function: Function) -> Fragment {
    let aggregate = Aggregate {
        function,
        of: Some(column(0)),
        filter: None,
    };
    Fragment {
        columns: vec![0, 1],
        filter: None,
        work: FragmentWork::Aggregate {
            by: vec![column(1)],
            aggregates: vec![aggregate],
        },
        output: storage::schema(&[DataType::Int64, DataType::Int64]),
    }
}

fn rows(filter: Option<Expr>, order: Vec<SortKey>) -> Fragment {
    Fragment {
        columns: vec![0, 1],
        filter,
        work: FragmentWork::Rows {
            project: vec![column(0)],
            limit: (!order.is_empty()).then_some(3),
            order,
        },
        output: storage::schema(&[DataType::Int64]),
    }
}

fn first(descending: bool) -> Vec<SortKey> {
    vec![SortKey {
        expr: column(0),
        descending,
        nulls_first: false,
    }]
}

/// Returns fragments that have no result before all rows were worked on.
fn silent() -> Vec<Fragment> {
    // Bounds do not decide this condition.
    let rest = binary(column(0), Operator::Modulo, literal(10));
    let never = binary(rest, Operator::NotEq, column(1));
    vec![
        aggregate(Function::Sum),
        rows(Some(never), vec![]),
        rows(None, first(true)),
        // Here bounds exclude all pages after the first rows.
        rows(None, first(false)),
    ]
}

/// A source that is slow, and counts the pages that were taken.
struct Slow {
    source: Arc<dyn Source>,
    a_page: Duration,
    pages: Arc<AtomicUsize>,
}

impl Source for Slow {
    fn read(&self, table: &Arc<Table>, pages: Vec<PageAddress>) -> PageStream {
        let (a_page, taken) = (self.a_page, Arc::clone(&self.pages));
        Box::new(self.source.read(table, pages).inspect(move |_| {
            std::thread::sleep(a_page);
            taken.fetch_add(1, Ordering::Relaxed);
        }))
    }
}

/// Returns the table in memory, in pages of so many bytes, with a count of the pages that were
/// taken.
fn in_memory(bytes: usize) -> (LocalSite, Arc<Table>, Arc<AtomicUsize>) {
    let batches = batches();
    let schema = batches[0].schema();
    let groups = Groups::OneEach.resolve(&schema).expect("columns");
    let size = PageSize::new(bytes).expect("a size");
    let shape = Shape::new(schema, size, groups, None).expect("a shape");
    let memory = Memory::new();
    let table = memory.table("t", &shape, [batches.as_slice()]);
    let pages = Arc::new(AtomicUsize::new(0));
    let slow = Slow {
        source: Arc::new(memory),
        a_page: Duration::ZERO,
        pages: Arc::clone(&pages),
    };
    (
        LocalSite::new(Arc::new(slow)),
        table.expect("rows fit"),
        pages,
    )
}

fn task(table: &Arc<Table>, fragment: Fragment, wanted: Cancellation) -> FragmentTask {
    FragmentTask {
        table: Arc::clone(table),
        fragment: Arc::new(fragment),
        rows: scan::all(table),
        wanted,
    }
}

/// Returns a question that is answered with no after `most` times, and the number of times that it
/// was asked.
fn times(most: usize) -> (Cancellation, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let ask = move || count.fetch_add(1, Ordering::Relaxed) < most;
    (Cancellation::new(move || !ask()), asked)
}

fn assert_unwanted(site: &dyn Site, task: &FragmentTask) {
    let mut found: Vec<_> = site.run(task).collect();
    let last = found.pop().expect("an error");
    assert!(matches!(last, Err(TaskError::Unwanted)), "{last:?}");
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_task_here_ends_when_it_is_not_wanted() {
    for fragment in silent() {
        let (here, table, pages) = in_memory(4096);
        let (wanted, _) = times(10);
        assert_unwanted(&here, &task(&table, fragment, wanted));
        let taken = pages.load(Ordering::Relaxed);
        assert!((1..=20).contains(&taken), "{taken} pages");
    }
}

#[test]
fn it_is_asked_for_every_vector() {
    for fragment in silent().into_iter().take(2) {
        let (here, table, _) = in_memory(128 << 10);
        let (wanted, asked) = times(usize::MAX);
        let found: Result<Vec<_>, _> = here.run(&task(&table, fragment, wanted)).collect();
        found.expect("it is wanted");
        let asked = asked.load(Ordering::Relaxed);
        assert!(asked >= ROWS as usize / VECTOR, "asked {asked} times");
    }
}

/// A node with the table, whose pages take a tenth of a second each.
struct Stand {
    node: Node,
    far: RemoteNode,
    table: Arc<Table>,
    pages: Arc<AtomicUsize>,
    _dir: tempfile::TempDir,
}

fn stand() -> Stand {
    let dir = tempfile::tempdir().unwrap();
    let tables = Tables::open(Arc::new(RealDisk), &[dir.path().to_path_buf()]).unwrap();
    let batches = batches();
    let options = LoadOptions {
        page_size: PageSize::new(4096).unwrap(),
        ..LoadOptions::default()
    };
    let mut load = tables
        .load("t", &batches[0].schema(), &options, Mode::Create)
        .unwrap();
    for batch in &batches {
        load.push(batch).unwrap();
    }
    let table = load.commit().unwrap();
    assert!(table.pages() > 50, "{} pages", table.pages());
    let pages = Arc::new(AtomicUsize::new(0));
    let source = Slow {
        source: Arc::new(Local::new(tables.clone(), LocalOptions::default())),
        a_page: Duration::from_millis(500),
        pages: Arc::clone(&pages),
    };
    let source: Arc<dyn Source> = Arc::new(source);
    let (node, far) = storage_node::start(tables, &source, Transport::Tcp, None);
    let table = far.open("t").unwrap();
    Stand {
        node,
        far,
        table,
        pages,
        _dir: dir,
    }
}

/// Waits until the node works on the task.
fn begun(pages: &AtomicUsize) {
    while pages.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_task_there_ends_when_it_is_not_wanted() {
    let stand = stand();
    let there = RemoteSite::new(stand.far.clone());
    let ended = Arc::new(AtomicBool::new(false));
    let wanted = Cancellation::by(Arc::clone(&ended));
    let task = task(&stand.table, aggregate(Function::Sum), wanted);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&ended);
        scope.spawn(|| assert_unwanted(&there, &task));
        begun(&stand.pages);
        ended.store(true, Ordering::Release);
    });
    // Its thread is free for other tasks: there is no second thread.
    let next = FragmentTask {
        rows: Vec::new(),
        wanted: Cancellation::default(),
        ..task
    };
    let found: Result<Vec<_>, _> = there.run(&next).collect();
    found.expect("it is wanted");
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    stand.node.stop().unwrap();
}

#[test]
fn a_node_that_stops_does_not_wait_for_a_scan() {
    let stand = stand();
    let there = RemoteSite::new(stand.far.clone());
    let task = task(
        &stand.table,
        aggregate(Function::Count),
        Cancellation::default(),
    );
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let found: Result<Vec<_>, _> = there.run(&task).collect();
            // Another node may run it.
            assert!(matches!(found, Err(TaskError::Lost(_))), "{found:?}");
        });
        begun(&stand.pages);
        stand.node.stop().unwrap();
    });
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}
