//! Reads of a storage node's file, beside reads of the same file here.
//!
//! `cargo bench --package kumiki-pages --bench remote -- [FILE] [SECONDS]`
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::reads::{PageCache, ReadFile, Way};
use fabric::Secret;
use fabric::tcp::Transport;
use kumiki_pages::node::{Limits, NoWorker, Node, NodeOptions, ShownFiles};
use kumiki_pages::remote::{Session, SessionOptions};
use std::os::unix::fs::FileExt;

fn cpu() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn main() {
    let args: Vec<String> = std::env::args().filter(|a| a != "--bench").collect();
    let path = args
        .get(1)
        .cloned()
        .unwrap_or("/dev/shm/kumiki-bench-pages".into());
    let seconds: f64 = args.get(2).map_or(1.0, |s| s.parse().unwrap());
    let size: u64 = 512 << 20;
    if std::fs::metadata(&path).map_or(true, |m| m.len() != size) {
        let mut bytes = vec![0u8; 1 << 20];
        let f = std::fs::File::create(&path).unwrap();
        let mut rng = fastrand::Rng::with_seed(1);
        for i in 0..size >> 20 {
            rng.fill(&mut bytes);
            f.write_all_at(&bytes, i << 20).unwrap();
        }
    }
    for unit in [512usize, 4096, 16384, 65536] {
        // Local.
        let pages = size / unit as u64;
        for threads in [1, 2, 4] {
            let t0 = Instant::now();
            let c0 = cpu();
            let total: u64 = std::thread::scope(|s| {
                let hs: Vec<_> = (0..threads)
                    .map(|t| {
                        let path = path.clone();
                        s.spawn(move || {
                            let f = ReadFile::open(path.as_ref(), PageCache::Past).unwrap();
                            let f = std::fs::File::from(
                                std::os::fd::AsFd::as_fd(&f).try_clone_to_owned().unwrap(),
                            );
                            let mut buf = disk::reads::OwnBuf::new(unit);
                            let mut rng = fastrand::Rng::with_seed(t);
                            let mut n = 0;
                            while t0.elapsed().as_secs_f64() < seconds {
                                for _ in 0..64 {
                                    f.read_exact_at(buf.as_mut(), rng.u64(0..pages) * unit as u64)
                                        .unwrap();
                                    n += 1;
                                }
                            }
                            n
                        })
                    })
                    .collect();
                hs.into_iter().map(|h| h.join().unwrap()).sum()
            });
            let dt = t0.elapsed().as_secs_f64();
            println!(
                "{unit:6} local {threads} threads: {:9.0} IOPS  {:.3} us cpu",
                total as f64 / dt,
                (cpu() - c0) / total as f64 * 1e6
            );
        }
        for transport in [Transport::Shm, Transport::Tcp] {
            for (io, depth, conns) in [(1, 256, 1), (2, 256, 1), (2, 1024, 1), (2, 1024, 2)] {
                let options = NodeOptions {
                    listen: "127.0.0.1:0".parse().unwrap(),
                    secret: Secret::new("x"),
                    threads: 1,
                    task_threads: 1,
                    way: Way::Static { threads: io },
                    depth: 2048,
                    transport,
                    shm: Default::default(),
                    verbs: None,
                    limits: Limits::default(),
                };
                let mut shown = ShownFiles::default();
                shown.show("f", ReadFile::open(path.as_ref(), PageCache::Past).unwrap());
                let node = Node::start(options, Arc::new(shown), Arc::new(NoWorker)).unwrap();
                let address = node.address();
                let c0 = cpu();
                let t0 = Instant::now();
                let total: u64 = std::thread::scope(|s| {
                    let hs: Vec<_> = (0..conns)
                        .map(|t| {
                            s.spawn(move || {
                                let mut o = SessionOptions::new(address, Secret::new("x"));
                                o.transport = transport;
                                o.depth = depth;
                                o.window_bytes = (depth * unit * 2).max(1 << 20);
                                let mut session = Session::connect(o).unwrap();
                                let open = session.open_file("f", unit).unwrap();
                                let mut rng = fastrand::Rng::with_seed(t);
                                let mut n = 0;
                                while t0.elapsed().as_secs_f64() < seconds {
                                    for _ in 0..session.room(&open) {
                                        session.read(&open, 0, rng.u32(0..open.pages as u32), 0);
                                    }
                                    session.turn(Duration::from_millis(100)).unwrap();
                                    while let Some(a) = session.arrived() {
                                        a.page.unwrap();
                                        n += 1;
                                    }
                                }
                                n
                            })
                        })
                        .collect();
                    hs.into_iter().map(|h| h.join().unwrap()).sum()
                });
                let dt = t0.elapsed().as_secs_f64();
                println!(
                    "{unit:6} {transport:?} io={io} depth={depth} conns={conns}: {:9.0} IOPS  {:.3} us cpu",
                    total as f64 / dt,
                    (cpu() - c0) / total as f64 * 1e6
                );
            }
        }
    }
}
