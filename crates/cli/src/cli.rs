//! The command line: all commands.

use std::str::FromStr;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::config_file;
use crate::logging::{DEFAULT_LOG_LEVEL, Levels};
use crate::serve_options::ServeOptions;

/// A distributed transactional key-value store.
#[derive(Parser, Debug)]
#[command(name = "kumiki", version = buildinfo::VERSION, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
    /// How much to say on standard error: off, error, warn, info, debug or trace, and after commas
    /// levels of single modules, for example info,kumiki_proxy=debug.
    #[arg(long, global = true, value_name = "LEVEL", default_value = DEFAULT_LOG_LEVEL, value_parser = Levels::from_str)]
    pub(crate) log_level: Levels,
}

impl Cli {
    /// Parses the arguments of this process. Ends the process if they are invalid.
    pub(crate) fn of_process() -> Cli {
        Cli::checked(std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    fn checked<A>(args: impl IntoIterator<Item = A>) -> Result<Cli, clap::Error>
    where
        A: Into<std::ffi::OsString> + Clone,
    {
        let args = args.into_iter().map(Into::into).collect();
        let mut command = Cli::command();
        let args = config_file::expand(&command, args)
            .map_err(|text| command.error(ErrorKind::ValueValidation, text))?;
        let cli = Cli::try_parse_from(args)?;
        if let CliCommand::Serve(serve) = &cli.command {
            let usable = base::cpus::usable().unwrap_or_default();
            serve.check(&usable).map_err(|text| {
                let mut command = Cli::command();
                command.build();
                let serve = command.find_subcommand_mut("serve");
                serve
                    .expect("a command of that name")
                    .error(ErrorKind::ValueValidation, text)
            })?;
        }
        Ok(cli)
    }
}

/// The commands.
#[derive(Subcommand, Debug)]
pub(crate) enum CliCommand {
    /// Serve Redis clients.
    Serve(Box<ServeOptions>),
    /// Stand before a Kumiki cluster or Redis: many clients, few and full packets to the nodes.
    Proxy(Box<crate::proxy::Options>),
    /// Look after the replicas of a cluster that runs.
    Cluster(crate::cluster_command::ClusterCommand),
    /// Keep tables as pages.
    Pages(crate::pages_command::PagesOptions),
    /// Run experiments and report them, with the program kumiki-bench in this program's directory.
    #[command(disable_help_flag = true)]
    Bench(crate::bench::Bench),
    /// Bring keys of Redis or Valkey to a running server: from a file, or from a running Redis.
    Import(Box<crate::import_command::ImportOptions>),
    /// Write the keys of a running server to a file of Redis.
    Export(crate::export_command::ExportOptions),
    /// Back up a running node or cluster, and restore it.
    Backup(crate::backup_command::BackupOptions),
    /// Verify a data directory without starting, and say what a recovery would give.
    Check(crate::check::CheckOptions),
    /// Query tables of pages in SQL, or serve clients of PostgreSQL.
    Sql(Box<crate::sql_command::SqlOptions>),
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::path::PathBuf;
    use std::time::Duration;

    use store::EpochTime;

    use super::*;
    use crate::serve_options::{DurabilityOption, MaxEpochDiff};

    fn serve(args: &[&str]) -> Result<ServeOptions, String> {
        let cli = Cli::checked(["kumiki", "serve"].iter().chain(args));
        cli.map(options).map_err(|error| error.to_string())
    }

    fn options(cli: Cli) -> ServeOptions {
        match cli.command {
            CliCommand::Serve(serve) => *serve,
            other => panic!("{other:?} is another command"),
        }
    }

    #[track_caller]
    fn refused(args: &[&str], words: &[&str]) {
        let said = serve(args).expect_err("refused");
        for word in words {
            assert!(said.contains(word), "{args:?}: {word:?} is missing: {said}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let serve = serve(&[]).unwrap();
        let listen = crate::membership::listen(serve.listen, None).unwrap();
        assert_eq!(listen.to_string(), "127.0.0.1:6380");
        assert!(serve.cluster.file.is_none());
        assert_eq!(serve.data, PathBuf::from("./kumiki-data"));
        assert_eq!(serve.durability, DurabilityOption::Group);
        assert_eq!(serve.epoch_time, EpochTime::Adaptive);
        assert_eq!(serve.max_epoch_diff, MaxEpochDiff(None));
        assert_eq!(
            (serve.log_buffers, serve.log_buffer_size.0),
            (4, 512 * 1024)
        );
        assert_eq!(
            (serve.checkpoint_log_size, serve.checkpoint_share),
            (None, 10)
        );
        assert_eq!(serve.loggers(), 1);
        assert_eq!(serve.replication.election(), Duration::from_secs(1));
        assert!(!serve.replication.naive && !serve.replication.lease_reads);
        assert!(serve.ramp.read_atomic.is_empty());
        assert_eq!(serve.ramp.algorithm, cluster::ramp::Algorithm::Fast);
        assert!(serve.affinity.is_none() && serve.cpus().is_empty());
        assert!(!serve.ephemeral && serve.requirepass.is_none() && serve.admin.is_none());
        assert_eq!(serve.idle_timeout, 0);
    }

    #[test]
    fn times_may_have_decimals() {
        for (text, nanos) in [
            ("0.5ms", 500_000),
            ("500us", 500_000),
            ("1ms", 1_000_000),
            ("1.25ms", 1_250_000),
            ("40ms", 40_000_000),
            ("2s", 2_000_000_000),
            ("12.5us", 12_500),
        ] {
            let fixed = EpochTime::Fixed(Duration::from_nanos(nanos));
            let serve = serve(&["--epoch-time", text]).unwrap();
            assert_eq!(serve.epoch_time, fixed, "{text}");
        }
        for text in [
            "1", "ms", ".ms", "1.2.3ms", "-1ms", "1e3us", "infs", "nans", "1 ms", "0ms", "9us",
            "11s", "1h",
        ] {
            assert!(serve(&["--epoch-time", text]).is_err(), "{text}");
        }
        let target = serve(&["--durability-target", "2.5ms"]).unwrap();
        let expected = Duration::from_micros(2500);
        assert_eq!(target.durability_target, Some(expected));
    }

    #[test]
    fn options_are_checked() {
        for args in [
            &["--max-value", "513mb"][..],
            &["--max-value", "0"],
            &["--threads", "0"],
            &["--ephemeral", "--data", "x"],
            &["--listen", "localhost"],
            &["--admin", "9180x"],
            &["--listen", "127.0.0.1:1", "--port", "2"],
            &["--max-epoch-diff", "0"],
            &["--max-epoch-diff", "-1"],
            &["--checkpoint-share", "0"],
            &["--checkpoint-share", "101"],
            &["--checkpoint-log-size", "big"],
            &["--ramp", "slow"],
            &["--read-atomic", ""],
        ] {
            assert!(serve(args).is_err(), "{args:?}");
        }
        let diff = serve(&["--max-epoch-diff", "3"]).unwrap().max_epoch_diff;
        assert_eq!(diff, MaxEpochDiff(NonZeroU64::new(3)));
        assert!(serve(&["--max-epoch-diff", "OFF"]).is_ok());
        assert!(serve(&["--checkpoint-log-size", "0"]).is_ok());
    }

    #[test]
    fn options_that_contradict_each_other_are_explained() {
        refused(
            &["--epoch-time", "1ms", "--durability-target", "3ms"],
            &["--epoch-time 1ms", "--durability-target", "adaptive"],
        );
        assert!(serve(&["--epoch-time", "adaptive", "--durability-target", "3ms"]).is_ok());
        for option in [
            &["--durability-target", "3ms"],
            &["--max-epoch-diff", "3"],
            &["--checkpoint-log-size", "1g"],
            &["--checkpoint-share", "5"],
        ] {
            let args = [&["--ephemeral"][..], option].concat();
            refused(&args, &["--ephemeral", option[0]]);
        }
    }

    #[test]
    fn a_node_needs_its_cluster_and_a_cluster_its_node() {
        let both = serve(&["--cluster", "c.toml", "--node", "2"]).unwrap();
        assert_eq!(both.cluster.node, Some(2));
        refused(&["--cluster", "c.toml"], &["--node"]);
        refused(&["--node", "2"], &["--cluster"]);
        refused(&["--transport", "tcp"], &["--cluster"]);
        for option in [
            &["--group", "8"][..],
            &["--naive"],
            &["--lease-reads"],
            &["--election-timeout", "1s"],
        ] {
            refused(option, &["--cluster", option[0]]);
        }
        let node = ["--cluster", "c.toml", "--node", "2"];
        let with = |further: &[&'static str]| [&node[..], further].concat();
        let group = serve(&with(&["--group", "8"])).unwrap().replication.group;
        assert_eq!(group, Some(8));
        refused(&with(&["--group", "8", "--naive"]), &["--group", "--naive"]);
        refused(&with(&["--group", "0"]), &["--group"]);
        refused(
            &with(&["--election-timeout", "1ms"]),
            &["between 50ms and 60s"],
        );
        refused(&["--cluster", "c.toml", "--node", "0"], &["--node"]);
    }

    #[test]
    fn a_placement_says_how_many_threads_there_are() {
        let place = |args: &[&str], usable: &[usize]| {
            let cli = Cli::try_parse_from(["kumiki", "serve"].iter().chain(args)).unwrap();
            let serve = options(cli);
            serve.check(usable).map(|()| serve)
        };
        let all: Vec<usize> = (0..16).collect();
        let list = ["--affinity", "0:1,2,3+4:5,6,10"];
        let serve = place(&list, &all).unwrap();
        assert_eq!((serve.loggers(), serve.threads()), (2, 6));
        assert_eq!(serve.cpus(), [1, 2, 3, 5, 6, 10]);
        let same = [&list[..], &["--loggers", "2", "--threads", "6"]].concat();
        assert!(place(&same, &all).is_ok());
        for (more, words) in [
            (
                ["--loggers", "1"],
                ["2 log threads", "--loggers asks for 1"],
            ),
            (["--threads", "2"], ["6 threads", "--threads asks for 2"]),
        ] {
            let said = place(&[&list[..], &more].concat(), &all).unwrap_err();
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
        let said = place(&list, &all[..8]).unwrap_err();
        assert!(
            said.contains("processor 10") && said.contains("0-7"),
            "{said}"
        );
    }
}
