//! The embedded database: accounts, transfers between them, and the sum that no transfer changes.
//!
//! ```sh
//! cargo run --package kumiki --example embedded [DIRECTORY]
//! ```
//!
//! Several threads transfer money at once. Each transfer is a transaction, written as a closure: the
//! database runs it again if another transaction changed what it had read. The program waits until
//! the transfers are on the disk, opens the directory again, and adds up all accounts.

use std::error::Error;
use std::path::Path;
use std::thread;

use kumiki::{Abort, Db, Options, TransactionError, Txn};

const ACCOUNTS: u64 = 10;
const EACH: i64 = 100;
/// Sum of all accounts, at each moment.
pub(crate) const TOTAL: i64 = ACCOUNTS as i64 * EACH;
const THREADS: u64 = 2;
const TRANSFERS: u64 = 500;

fn main() -> Result<(), Box<dyn Error>> {
    let outcome = match std::env::args_os().nth(1) {
        Some(directory) => run(Path::new(&directory))?,
        None => run(tempfile::tempdir()?.path())?,
    };
    println!(
        "{} transfers; the accounts hold {}, and {} after a restart",
        outcome.transfers, outcome.sum, outcome.recovered
    );
    assert_eq!([outcome.sum, outcome.recovered], [TOTAL; 2]);
    Ok(())
}

/// What the program did, and the sums of the accounts.
pub(crate) struct Outcome {
    pub(crate) transfers: u64,
    pub(crate) sum: i64,
    pub(crate) recovered: i64,
}

/// Transfers money between the accounts in a directory, and adds them up.
pub(crate) fn run(directory: &Path) -> Result<Outcome, Box<dyn Error>> {
    let db = Db::open(Options::in_dir(directory))?;
    open_accounts(&db)?;

    let transfers: Result<u64, Abort> = thread::scope(|scope| {
        let start = |number| {
            let db = &db;
            scope.spawn(move || transfer(db, number))
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|done| done.expect("no thread panics")).sum()
    });
    let transfers = transfers?;
    let sum = sum(&db)?;
    db.close()?;
    drop(db);

    // Transfers that the program waited for are there when the directory is opened again, also after a
    // crash.
    let db = Db::open(Options::in_dir(directory))?;
    let recovered = self::sum(&db)?;
    db.close()?;
    Ok(Outcome {
        transfers,
        sum,
        recovered,
    })
}

fn account(number: u64) -> Vec<u8> {
    format!("account:{number}").into_bytes()
}

fn balance(txn: &mut Txn<'_>, account: &[u8]) -> Result<i64, TransactionError> {
    let value = txn.get(account)?.unwrap_or(b"0");
    Ok(String::from_utf8_lossy(value).parse().unwrap_or(0))
}

fn set(txn: &mut Txn<'_>, account: &[u8], balance: i64) -> Result<(), TransactionError> {
    txn.put(account, balance.to_string().as_bytes())
}

/// Sets all accounts in one transaction.
fn open_accounts(db: &Db) -> Result<(), Abort> {
    let opened = db.transact(|txn| {
        for number in 0..ACCOUNTS {
            set(txn, &account(number), EACH)?;
        }
        Ok(())
    })?;
    opened.wait_durable()
}

/// Transfers money between accounts. Returns how many transfers moved money.
fn transfer(db: &Db, thread: u64) -> Result<u64, Abort> {
    let mut moved = 0;
    let mut last = None;
    for number in 0..TRANSFERS {
        let from = account((number * 7 + thread) % ACCOUNTS);
        let to = account((number * 3 + 2 * thread + 1) % ACCOUNTS);
        let amount = (number % 20) as i64;
        let transfer = db.transact(|txn| {
            let left = balance(txn, &from)? - amount;
            if from == to || left < 0 {
                return Ok(false);
            }
            let there = balance(txn, &to)? + amount;
            set(txn, &from, left)?;
            set(txn, &to, there)?;
            Ok(true)
        })?;
        moved += u64::from(transfer.value);
        last = Some(transfer);
    }
    // Transactions become durable in their order: the last one stands for all before it.
    match last {
        Some(last) => last.wait_durable().map(|_| moved),
        None => Ok(moved),
    }
}

/// Returns the sum of all accounts, as of one moment.
fn sum(db: &Db) -> Result<i64, Abort> {
    let sum = db.transact(|txn| {
        let mut sum = 0;
        for number in 0..ACCOUNTS {
            sum += balance(txn, &account(number))?;
        }
        Ok(sum)
    })?;
    sum.wait_durable()
}
