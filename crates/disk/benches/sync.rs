//! Measures the cost of a single write and its sync: through the page cache, past it, and by stores
//! to mapped memory, on fresh room, on room set aside, and on room written before. Also measures the cost of continuing a log
//! in a next file: in a new one, and in one that was written before and gets another name.
//!
//! `cargo bench --package kumiki-disk --bench sync -- [DIR] [ROUNDS]`: the devices take turns,
//! write by write, so that any other load on the machine affects all of them alike. The output
//! shows medians and 99th percentiles, and how many processors were busy in the half second before
//! (this program sleeps then). A line waits some time for a quiet half second.

use std::io::IoSlice;
use std::path::Path;
use std::time::{Duration, Instant};

use kumiki_disk::{DirectDisk, Disk, DiskFile, MappedDisk, RealDisk};

const SIZES: [usize; 6] = [512, 4096, 16_384, 65_536, 262_144, 524_288];

#[derive(Clone, Copy)]
enum FileSpace {
    Fresh,
    Aside,
    Warm,
}

const ROOMS: [(FileSpace, &str); 3] = [
    (FileSpace::Fresh, "fresh"),
    (FileSpace::Aside, "set aside"),
    (FileSpace::Warm, "warm"),
];

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    let dir = args
        .first()
        .map_or(env!("CARGO_TARGET_TMPDIR"), String::as_str);
    let rounds = args.get(1).map_or(100, |n| n.parse().expect("a number"));
    let dir = tempfile::tempdir_in(dir).expect("makes a directory");
    let direct = DirectDisk::new().expect("io_uring");
    let map = MappedDisk::default();
    let devices: [(&str, &dyn Disk); 3] =
        [("write", &RealDisk), ("direct", &direct), ("map", &map)];
    println!(
        "{rounds} writes with sync each, in {}",
        dir.path().display()
    );
    print!("{:>9} {:>9} {:>5}", "bytes", "room", "load");
    for (name, _) in devices {
        print!(" | {:>10} {:>10} {:>10}", name, "p99", "MB/s");
    }
    println!();
    for (room, room_name) in ROOMS {
        for size in SIZES {
            let load = quiet();
            let times = measure(
                dir.path(),
                &devices.map(|(_, disk)| disk),
                room,
                size,
                rounds,
            );
            print!("{size:>9} {room_name:>9} {load:>5.2}");
            for mut times in times {
                times.sort_unstable();
                let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
                let rate = size as f64 / at(50).as_secs_f64() / 1e6;
                let micros = |time: Duration| format!("{:.0} µs", time.as_secs_f64() * 1e6);
                print!(
                    " | {:>10} {:>10} {rate:>10.1}",
                    micros(at(50)),
                    micros(at(99))
                );
            }
            println!();
        }
    }
    go_on(dir.path(), &devices, rounds);
}

/// Prints the time until the first sector of a next file, its name included, is durable.
fn go_on(dir: &Path, devices: &[(&str, &dyn Disk)], rounds: usize) {
    let load = quiet();
    println!("the next file, load {load:.2}");
    for (name, disk) in devices {
        for warm in [false, true] {
            let mut times: Vec<Duration> = (0..rounds)
                .map(|round| next_file(dir, *disk, round, warm))
                .collect();
            times.sort_unstable();
            let (median, worst) = (times[rounds / 2], times[rounds - 1]);
            let kind = if warm { "warm" } else { "new" };
            println!("{name:>9} {kind:>9} | median {median:>10.0?}, at most {worst:>10.0?}");
        }
    }
}

fn next_file(dir: &Path, disk: &dyn Disk, round: usize, warm: bool) -> Duration {
    const ROOM: usize = 4 << 20;
    let (spare, path) = (dir.join("spare"), dir.join(format!("next{round}")));
    let ready = warm.then(|| {
        let file = disk.create_new(&spare).expect("creates");
        prepare(&*file, FileSpace::Warm, ROOM);
        file
    });
    let start = Instant::now();
    let file = if let Some(file) = ready {
        disk.rename(&spare, &path).expect("renames");
        file
    } else {
        let file = disk.create_new(&path).expect("creates");
        file.allocate(ROOM as u64).expect("sets aside");
        file
    };
    file.write_and_sync(&[IoSlice::new(&[1; 4096])], 0)
        .expect("writes");
    disk.sync_dir(dir).expect("syncs");
    let took = start.elapsed();
    disk.remove(&path).expect("removes");
    took
}

/// Waits for a moment in which the machine is quiet, but not for ever. Returns the number of
/// processors that are busy.
fn quiet() -> f64 {
    let mut load = f64::MAX;
    for _ in 0..40 {
        let (before, start) = (busy(), Instant::now());
        std::thread::sleep(Duration::from_millis(500));
        load = (busy() - before) / start.elapsed().as_secs_f64();
        if load < 0.1 {
            break;
        }
    }
    load
}

/// Returns the seconds for which all processors have been busy.
fn busy() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").expect("reads the machine's figures");
    let line = text.lines().next().expect("the sum over all processors");
    let ticks: Vec<f64> = line
        .split_whitespace()
        .skip(1)
        .map(|field| field.parse().expect("a number"))
        .collect();
    // Without idling and waiting for devices, which are the fourth and fifth; a tick is 10 ms.
    (ticks[..7].iter().sum::<f64>() - ticks[3] - ticks[4]) / 100.0
}

/// Returns the times of `rounds` writes on each device.
fn measure(
    dir: &Path,
    disks: &[&dyn Disk],
    room: FileSpace,
    size: usize,
    rounds: usize,
) -> Vec<Vec<Duration>> {
    let mut files = Vec::new();
    for (i, disk) in disks.iter().enumerate() {
        let path = dir.join(format!("f{i}"));
        let file = disk.create_new(&path).expect("creates");
        // The log writes in this way: on a device of sectors a write fills its last one.
        let padded = size.next_multiple_of(file.alignment());
        prepare(&*file, room, padded * rounds);
        disk.sync_dir(dir).expect("syncs");
        files.push((path, file, vec![0x5a; padded], Vec::new()));
    }
    for round in 0..rounds {
        for (_, file, bytes, times) in &mut files {
            let start = Instant::now();
            let at = (round * bytes.len()) as u64;
            file.write_and_sync(&[IoSlice::new(bytes)], at)
                .expect("writes");
            times.push(start.elapsed());
        }
    }
    for (disk, (path, ..)) in disks.iter().zip(&files) {
        disk.remove(path).expect("removes");
    }
    files.into_iter().map(|(.., times)| times).collect()
}

fn prepare(file: &dyn DiskFile, room: FileSpace, size: usize) {
    let FileSpace::Fresh = room else {
        file.allocate(size as u64).expect("sets aside");
        if let FileSpace::Warm = room {
            let zeros = vec![0; 1 << 20];
            for at in (0..size).step_by(zeros.len()) {
                let piece = &zeros[..zeros.len().min(size - at)];
                file.write_all_at(&[IoSlice::new(piece)], at as u64)
                    .expect("writes");
            }
        }
        file.sync_data().expect("syncs");
        return;
    };
}
