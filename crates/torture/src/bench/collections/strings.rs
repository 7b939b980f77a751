//! The memory of keys with short strings.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::aim::Aim;
use super::content::send;
use super::figures::resident;
use super::options::Options;
use crate::bench::cell::BenchMode;
use crate::bench::{STORES, Servers};
use crate::server::ServerUnderTest;

const KEYS: [u32; 2] = [1_000_000, 3_000_000];
/// Bytes of a value.
const VALUES: [usize; 2] = [4, 100];
/// Bytes of a key: `key:` and twelve digits.
const KEY: usize = 16;
/// The most bytes for each key besides its own and those of its value.
const AIM: Aim = Aim::AtMost(75.0);

/// Prints the resident bytes of both processes for each key, besides those of key and value. The keys come in random
/// order.
pub(super) fn memory(binary: &Path, options: &Options) -> Result<()> {
    println!("\nbytes of a key besides key and value | kumiki | redis | aim");
    for keys in KEYS {
        for value in VALUES {
            let servers = Servers::start(binary, BenchMode::Ephemeral, &options.io)?;
            let mut bytes = [0.0; 2];
            for side in STORES {
                let server = servers.server(side);
                let before = resident(server.pid())?;
                fill(server, keys, value)?;
                // Tables that were outgrown are freed by and by.
                thread::sleep(Duration::from_secs(2));
                let of_keys = (resident(server.pid())? - before) / f64::from(keys);
                bytes[side as usize] = of_keys - (KEY + value) as f64;
            }
            println!(
                "{keys:>9} keys, values of {value:>3} bytes  | {:>6.1} | {:>5.1} | {}",
                bytes[0],
                bytes[1],
                AIM.of(bytes[0])
            );
        }
    }
    Ok(())
}

fn fill(server: &ServerUnderTest, keys: u32, value: usize) -> Result<()> {
    let mut numbers: Vec<u32> = (0..keys).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut numbers);
    let value = "x".repeat(value);
    let commands = numbers.into_iter().map(|number| {
        let key = format!("key:{number:012}");
        vec!["SET".to_owned(), key, value.clone()]
    });
    send(server, commands)
}
