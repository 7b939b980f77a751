//! `kumiki backup create`.

use std::time::{Duration, Instant};

use backup::{
    BackupManifest, Creation, CreationError, CreationObserver, CreationOptions, NodeDescription,
    NodeSource, Repository,
};
use base::size::Size;
use base::utc::UtcTime;
use clap::Args;

use super::location::{self, EncryptionOptions};
use super::node_source::ConnectedNode;
use crate::argument_values::parse_time;
use crate::node_connection::{CredentialOptions, Credentials};
use crate::output::say_line;
use crate::progress::StatusLine;
use crate::signals::StopRequest;
use crate::table_location::resolve_as;

/// How often a thread that waits looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);
/// The longest time between two backups: nodes keep their files twice as long.
const LONGEST_INTERVAL: Duration = Duration::from_secs(300);

/// Options of `kumiki backup create`.
#[derive(Args, Debug)]
pub(super) struct CreateOptions {
    /// The node: where its clients connect. Of a cluster any node; the others are found by its file.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6380")]
    from: String,
    #[command(flatten)]
    credentials: CredentialOptions,
    /// The directory of the backups, which is made if it is not there, or s3://BUCKET/PREFIX. One node or cluster has
    /// it for itself.
    #[arg(long, value_name = "DIR|URL")]
    to: String,
    #[command(flatten)]
    key: EncryptionOptions,
    /// Make a full backup, from which later ones go on. Older ones can be removed then, with the directory of their
    /// chain.
    #[arg(long)]
    full: bool,
    /// Go on making backups until a signal comes. Their logs have no gaps, because the nodes keep them meanwhile.
    #[arg(long)]
    follow: bool,
    /// With --follow, the time from one backup to the next: 300s at most.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time, requires = "follow")]
    every: Duration,
    /// Read no more than this from the nodes in a second, for example 50MiB.
    #[arg(long, value_name = "SIZE")]
    max_rate: Option<Size>,
    /// The longest time for which the nodes hold back their replies to find a moment that they have in common. As a
    /// rule it takes one round trip of the network.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = time)]
    hold: Duration,
}

fn time(text: &str) -> Result<Duration, String> {
    let wanted = "write a time with its unit, such as 10s or 500ms";
    parse_time(text).ok_or_else(|| wanted.to_owned())
}

/// Makes a backup, or several.
///
/// # Errors
/// The text says why there is none.
pub(super) fn run(options: &CreateOptions) -> Result<(), String> {
    if options.every > LONGEST_INTERVAL || options.every.is_zero() {
        return Err("--every is more than 0s, and 300s at most".to_owned());
    }
    if !(Duration::from_millis(1)..=Duration::from_secs(5)).contains(&options.hold) {
        return Err("--hold is from 1ms to 5s".to_owned());
    }
    let stop = StopRequest::on_signal()?;
    let key = options.key.open()?;
    let store = location::store(&options.to)?;
    let credentials = options.credentials.open()?;
    let mut nodes = connect(&options.from, &credentials)?;
    let descriptions = nodes.iter_mut().map(ConnectedNode::describe);
    let descriptions: Vec<NodeDescription> = descriptions.collect::<Result<_, _>>()?;
    let repository = Repository::open_or_create(store, key, &descriptions);
    let repository = repository.map_err(|error| error.to_string())?;
    let mut observer = Observer {
        line: StatusLine::new(),
        stop,
        rate: options.max_rate,
        next_read: Instant::now(),
    };
    let sources = nodes.iter_mut().map(|node| node as &mut dyn NodeSource);
    let creation_options = CreationOptions {
        full: options.full,
        hold: options.hold,
        release: buildinfo::VERSION.to_owned(),
        ..CreationOptions::default()
    };
    let sources = sources.zip(descriptions).collect();
    let creation = Creation::begin(&repository, sources, creation_options, &mut observer);
    let mut creation = creation.map_err(|error| error.to_string())?;
    let made = make(&mut creation, options, &mut observer);
    creation.end();
    made.map_err(|error| error.to_string())
}

fn make(
    creation: &mut Creation<'_>,
    options: &CreateOptions,
    observer: &mut Observer,
) -> Result<(), CreationError> {
    loop {
        let begun = Instant::now();
        match creation.make(observer) {
            Ok(manifest) => describe(&manifest, begun.elapsed()),
            // That is how it ends; nothing is lost.
            Err(CreationError::Stopped) if options.follow => return Ok(()),
            Err(error) => return Err(error),
        }
        if !options.follow {
            return Ok(());
        }
        while begun.elapsed() < options.every {
            if observer.is_stopped() {
                return Ok(());
            }
            std::thread::sleep(LOOK.min(options.every));
        }
    }
}

fn describe(manifest: &BackupManifest, took: Duration) {
    let kind = if manifest.number == 0 {
        "full"
    } else {
        "incremental"
    };
    let nodes = match manifest.nodes.len() {
        1 => String::new(),
        nodes => format!("{nodes} nodes, "),
    };
    say_line!(
        "{}: {kind}, {nodes}{}, as of {}, in {:.1} s",
        manifest.name(),
        Size(manifest.bytes()),
        UtcTime(manifest.moment_ms),
        took.as_secs_f64()
    );
}

/// Connects to the node at an address, and to a node of each other partition of its cluster.
fn connect(from: &str, credentials: &Credentials) -> Result<Vec<ConnectedNode>, String> {
    let addresses = resolve_as("--from", "127.0.0.1:6380", from)?;
    let mut first = ConnectedNode::connect(&addresses, credentials)?;
    let info = first.info()?;
    if let Some(place) = info.partitions.iter().find(|place| place.is_replicated) {
        return Err(format!(
            "partition {} is on several nodes, and such partitions cannot be backed up yet: 'kumiki export rdb' writes \
             the keys of its leader to a file of one moment",
            place.partition
        ));
    }
    let mut nodes = Vec::new();
    let mut first = Some(first);
    for place in &info.partitions {
        let own = first.take_if(|_| place.node == info.node);
        let node = match own {
            Some(first) => first,
            None => ConnectedNode::connect(&[place.address], credentials)
                .map_err(|error| format!("node {}: {error}", place.node))?,
        };
        nodes.push(node);
    }
    // A server of no cluster has no partitions; a node without one has nothing to back up.
    nodes.extend(first.filter(|_| info.partitions.is_empty()));
    Ok(nodes)
}

/// Shows the progress, and keeps the pace.
struct Observer {
    line: StatusLine,
    stop: StopRequest,
    rate: Option<Size>,
    /// When the next read may begin.
    next_read: Instant,
}

impl CreationObserver for Observer {
    fn copied(&mut self, node: u16, done: u64, of: u64) {
        let who = match node {
            0 => String::new(),
            node => format!("node {node}: "),
        };
        self.line
            .show(&format!("{who}{} of {}", Size(done), Size(of)));
    }

    fn note(&mut self, text: &str) {
        self.line.note(&format!("kumiki: {text}"));
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_wanted()
    }

    fn pace(&mut self, bytes: u64) {
        let Some(Size(rate)) = self.rate else { return };
        // Time in which nothing was read, as between two backups, allows no faster reads later.
        let took = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        self.next_read = self.next_read.max(Instant::now()) + took;
        while let Some(left) = self.next_read.checked_duration_since(Instant::now())
            && !left.is_zero()
            && !self.is_stopped()
        {
            std::thread::sleep(left.min(LOOK));
        }
    }
}
