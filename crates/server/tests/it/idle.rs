//! Waiting costs no processor time. Alone in its process, whose time is measured.

use std::time::Duration;

use crate::support::{config, durable_with, ok};
use kumiki_server::{Config, Durability};
use testkit::http;
use testkit::own_process::run_alone;

/// Returns the processor time of this process so far.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("time goes forward")
}

/// A client waits for a checkpoint, others wait for a sync, one does nothing with its snapshot, and
/// an admin endpoint gets no requests.
#[test]
fn waiting_costs_nothing() {
    run_alone("idle::waiting_costs_nothing", measure);
}

fn measure() {
    let served = durable_with(Config {
        durability: Durability::Group,
        admin: Some("127.0.0.1:0".parse().unwrap()),
        ..config()
    });
    assert_eq!(served.client().call(&["SET", "a", "1"]), ok());
    assert_eq!(http::get(served.admin(), "/health").status, 200);
    // A client that has a snapshot and does not ask for more.
    let mut holder = served.client();
    holder.call(&["KUMIKI.SNAPSHOT", "BEGIN"]);
    served.gate.close();
    let [mut writer, mut reader, mut saver] = [(); 3].map(|()| served.client());
    writer.send(&["SET", "a", "2"]);
    assert!(writer.is_silent(Duration::from_millis(50)));
    reader.send(&["GET", "a"]);
    saver.send(&["SAVE"]);
    let a_while = Duration::from_millis(100);
    assert!(saver.is_silent(a_while) && reader.is_silent(a_while));
    let (before, time) = (cpu_time(), Duration::from_millis(500));
    std::thread::sleep(time);
    let spent = cpu_time() - before;
    // A loop that does not sleep would take all of it.
    assert!(spent < time / 3, "{spent:?} of {time:?}");
    served.gate.open();
    assert_eq!(writer.reply(), ok());
    assert_eq!(saver.reply(), ok());
    reader.reply();
}
