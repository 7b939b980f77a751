//! The programs with real drivers.

use std::net::SocketAddr;

use crate::support::drivers::{Drivers, Language, lines};

/// Returns the output of the driver programs for Cassandra at `address`, all run at the same time:
/// each has a keyspace of its own. They get `user`, a name and a password, if there is one.
pub(crate) fn run(
    drivers: &Drivers,
    address: SocketAddr,
    user: Option<[&str; 2]>,
) -> Vec<Vec<String>> {
    std::thread::scope(|scope| {
        let mut runs = Vec::new();
        for language in Language::ALL {
            for protocol in language.protocols() {
                let mut command = drivers.program(language, protocol, address);
                command.args(user.into_iter().flatten());
                runs.push(scope.spawn(move || lines(&mut command)));
            }
        }
        let runs = runs.into_iter();
        runs.map(|run| run.join().expect("it ends well")).collect()
    })
}
