//! `kumiki sql serve`: clients of PostgreSQL run queries over tables of pages.

use std::io::Write;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use sql::Rights;
use sql::serve::{Options, SqlServer};

use super::query_options::QueryOptions;
use crate::argument_values::parse_address;
use crate::descriptors;
use crate::logging::LogControl;
use crate::passwords;
use crate::signals::{self, ConfigReload, stop_on};
use crate::tls_options::TlsOptions;

/// Options of `kumiki sql serve`.
#[derive(Args, Debug)]
pub(crate) struct SqlServeOptions {
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:5433", value_parser = parse_address)]
    listen: SocketAddr,
    #[command(flatten)]
    queries: QueryOptions,
    /// A file with the password that clients must give, under any user name.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsOptions,
    /// Serve anyone who can reach the address, without a password.
    #[arg(long)]
    insecure: bool,
    /// Connections at once; further ones are closed.
    #[arg(long, value_name = "N", default_value = "100")]
    connections: NonZeroUsize,
    /// Queries that run at once; further ones wait, and are refused after half a minute.
    #[arg(long, value_name = "N", default_value = "8")]
    queries_at_once: NonZeroUsize,
    /// Seconds that a query waits for its client to take rows before it ends with an error; 0: for ever.
    #[arg(long, value_name = "SECONDS", default_value = "600")]
    row_timeout: u64,
}

/// Serves until a signal requests the stop.
pub(crate) fn run(options: &SqlServeOptions, log: &Arc<LogControl>) -> Result<(), String> {
    descriptors::raise();
    let signals = signals::take(options.tls.are_given())?;
    let certificate = options.tls.certificate()?;
    let shared = options
        .queries
        .shared(Rights::Read, Some(options.queries_at_once))?;
    // Queries report such an error, too; the operator should see it at the start.
    if let Err(error) = shared.catalogue().names() {
        tracing::warn!("{error}");
    }
    let password = options
        .password_file
        .as_deref()
        .map(passwords::of_file)
        .transpose()?;
    let server = Options {
        listen: options.listen,
        password,
        certificate: certificate.clone(),
        insecure: options.insecure,
        connections: options.connections,
        queries: options.queries_at_once,
        patience: (options.row_timeout > 0).then(|| Duration::from_secs(options.row_timeout)),
    };
    let runtime = sql::session::runtime(None);
    let runtime = runtime.map_err(|error| format!("no threads for clients: {error}"))?;
    runtime.block_on(async {
        let bound = SqlServer::bind(&server, shared).await;
        let (server, stopper) = bound.map_err(|error| error.to_string())?;
        let reload = ConfigReload::new(None, log).with_certificate(certificate);
        stop_on(signals, reload, move || stopper.stop());
        let address = server.address();
        let address = address.map_err(|error| format!("no address: {error}"))?;
        announce(address).map_err(|error| format!("cannot announce the address: {error}"))?;
        server.serve().await;
        Ok::<(), String>(())
    })?;
    // The planning of a statement may still be running.
    runtime.shutdown_background();
    tracing::info!("stopped");
    Ok(())
}

fn announce(address: SocketAddr) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready at {address}")?;
    out.flush()
}
