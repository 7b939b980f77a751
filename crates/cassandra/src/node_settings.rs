//! The settings of a node: `cassandra.yaml`, the log's settings, and Java's arguments.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};
use crate::installation::Installed;
use crate::network::{PORT, STORAGE_PORT, ip};
use crate::options::{Compiler, Options, Paxos};
use crate::process;

/// All settings of one node.
#[derive(Clone, Debug)]
pub(super) struct NodeSettings {
    pub(super) id: u8,
    /// The directory of all of its files.
    pub(super) home: PathBuf,
    ip: Ipv4Addr,
    token: i64,
    /// The addresses of all nodes.
    seeds: Vec<Ipv4Addr>,
    paxos: Paxos,
    heap_mib: u64,
    compiler: Compiler,
    passwords: bool,
    installed: Installed,
}

impl NodeSettings {
    /// Returns the settings of node `id`, from 1 on, below `dir`, which is absolute.
    pub(super) fn new(options: &Options, id: u8, dir: &Path) -> NodeSettings {
        let all = 1..=options.nodes;
        NodeSettings {
            id,
            home: dir.join(format!("node{id}")),
            ip: ip(options.network, id),
            token: token(options.nodes, id),
            seeds: all.map(|id| ip(options.network, id)).collect(),
            paxos: options.paxos,
            heap_mib: options.heap_mib,
            compiler: options.compiler,
            passwords: options.passwords,
            installed: options.installed.clone(),
        }
    }

    /// Returns its address for clients.
    pub(super) fn address(&self) -> SocketAddr {
        (self.ip, PORT).into()
    }

    /// Writes the node's files.
    pub(super) fn write(&self) -> Result<()> {
        fs::create_dir_all(&self.home).map_err(Error::file(&self.home))?;
        for (name, text) in [
            ("cassandra.yaml", self.yaml()),
            ("logback.xml", LOGBACK.to_owned()),
        ] {
            let file = self.home.join(name);
            fs::write(&file, text).map_err(Error::file(&file))?;
        }
        Ok(())
    }

    /// Returns the node's `cassandra.yaml`. Settings that are not there have Cassandra's defaults.
    fn yaml(&self) -> String {
        let (ip, home, token) = (self.ip, self.home.display(), self.token);
        let seeds: Vec<String> = self.seeds.iter().map(Ipv4Addr::to_string).collect();
        let (seeds, paxos) = (seeds.join(","), self.paxos.name());
        let (authenticator, authorizer) = match self.passwords {
            true => ("PasswordAuthenticator", "CassandraAuthorizer"),
            false => ("AllowAllAuthenticator", "AllowAllAuthorizer"),
        };
        format!(
            r#"cluster_name: kumiki
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
# One token each, told in advance, and no data to fetch: so all nodes may start at once.
num_tokens: 1
initial_token: "{token}"
auto_bootstrap: false
endpoint_snitch: SimpleSnitch
# All are seeds, so that any of them can be started again while another one is dead.
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "{seeds}"
listen_address: {ip}
rpc_address: {ip}
storage_port: {STORAGE_PORT}
native_transport_port: {PORT}
start_native_transport: true
data_file_directories: ["{home}/data"]
commitlog_directory: "{home}/commitlog"
saved_caches_directory: "{home}/saved_caches"
hints_directory: "{home}/hints"
cdc_raw_directory: "{home}/cdc_raw"
# Cassandra's default: what was acknowledged in the last ten seconds may be lost with the machine.
commitlog_sync: periodic
commitlog_sync_period: 10s
commitlog_segment_size: 32MiB
commitlog_total_space: 512MiB
# A machine that is busy is no failed node.
read_request_timeout: 20s
range_request_timeout: 20s
write_request_timeout: 20s
counter_write_request_timeout: 20s
cas_contention_timeout: 20s
truncate_request_timeout: 60s
# Sized for several nodes on one machine.
concurrent_reads: 16
concurrent_writes: 32
concurrent_counter_writes: 16
file_cache_size: 64MiB
memtable_heap_space: {memtable}MiB
memtable_offheap_space: 128MiB
key_cache_size: 16MiB
counter_cache_size: 0MiB
prepared_statements_cache_size: 10MiB
paxos_variant: {paxos}
# No older node is to understand what this one writes.
storage_compatibility_mode: NONE
authenticator: {authenticator}
authorizer: {authorizer}
# What was granted or taken away is felt at once.
roles_validity: 0ms
permissions_validity: 0ms
credentials_validity: 0ms
# TRUNCATE and DROP would keep copies.
auto_snapshot: false
"#,
            memtable = self.heap_mib / 4,
        )
    }

    /// Returns the command that runs the node.
    pub(super) fn command(&self) -> Result<Command> {
        let heap = self.heap_mib;
        let home = self.home.display();
        let jars = &self.installed.jars;
        let mut command = process::command(&self.installed.java);
        if self.compiler == Compiler::Quick {
            command.arg("-XX:TieredStopAtLevel=1");
        }
        command.args([format!("-Xms{heap}m"), format!("-Xmx{heap}m")]);
        command.args(JAVA);
        command.args(EXPORTS.map(|name| format!("--add-exports={name}=ALL-UNNAMED")));
        command.args(OPENS.map(|name| format!("--add-opens={name}=ALL-UNNAMED")));
        command.arg(format!("-javaagent:{}", agent(jars)?.display()));
        command.args([
            format!("-Dlogback.configurationFile={home}/logback.xml"),
            format!("-Dcassandra.config=file://{home}/cassandra.yaml"),
            format!("-Dcassandra.storagedir={home}"),
            format!("-Dcassandra.logdir={home}/logs"),
            format!("-Dcassandra.triggers_dir={home}/triggers"),
        ]);
        command.arg("-cp").arg(jars.join("*"));
        command.arg("org.apache.cassandra.service.CassandraDaemon");
        command.current_dir(&self.home);
        Ok(command)
    }
}

/// Returns the first token of node `id` of `nodes`: tokens divide the ring evenly.
fn token(nodes: u8, id: u8) -> i64 {
    let part = (1_i128 << 64) / i128::from(nodes.max(1));
    let token = i128::from(i64::MIN) + 1 + part * i128::from(id - 1);
    token.try_into().expect("it lies on the ring")
}

/// Returns the agent that measures objects, without which Cassandra guesses the size of its tables.
fn agent(jars: &Path) -> Result<PathBuf> {
    let files = fs::read_dir(jars).map_err(Error::file(jars))?;
    let mut files = files.flatten().map(|entry| entry.path());
    let is_agent = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("jamm-") && name.ends_with(".jar")
    };
    let found = files.find(is_agent);
    found.ok_or_else(|| Error::NotInstalled {
        jars: jars.to_owned(),
    })
}

/// One line for each message, to standard output.
const LOGBACK: &str = r#"<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date{HH:mm:ss.SSS} [%thread] %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"#;

/// Java's arguments besides heap, modules and places.
const JAVA: [&str; 16] = [
    "-XX:+UseG1GC",
    "-XX:+ParallelRefProcEnabled",
    "-XX:MaxGCPauseMillis=300",
    "-XX:MaxDirectMemorySize=512m",
    // Statistics in a mapped file make threads wait for the disk.
    "-XX:+PerfDisableSharedMem",
    // A node without memory must end, as other nodes expect of it.
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
    "-Djava.awt.headless=true",
    "-Djdk.attach.allowAttachSelf=true",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.useCacheForAllThreads=true",
    "-Dcassandra-foreground=yes",
    // The nodes are configured with their members; there is no need to wait for gossip.
    "-Dcassandra.ring_delay_ms=2000",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.consistent.rangemovement=false",
    // The first user is there when the node is.
    "-Dcassandra.superuser_setup_delay_ms=0",
];

/// Packages inside Java 17 that Cassandra uses.
const EXPORTS: [&str; 8] = [
    "java.base/jdk.internal.misc",
    "java.base/java.lang.ref",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
    "jdk.attach/sun.tools.attach",
];
/// Packages inside Java 17 that Cassandra looks into.
const OPENS: [&str; 15] = [
    "java.base/java.lang.module",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.util.jar",
    "jdk.management/com.sun.management.internal",
    "java.base/sun.nio.ch",
    "java.base/java.io",
    "java.base/java.nio",
    "java.base/java.lang",
    "java.base/java.lang.reflect",
    "java.base/java.util",
    "java.base/java.util.concurrent",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(nodes: u8, id: u8) -> NodeSettings {
        let installed = Installed {
            java: "/java".into(),
            jars: "/jars".into(),
        };
        NodeSettings::new(&Options::new(installed, nodes), id, Path::new("/data"))
    }

    #[test]
    fn tokens_divide_the_ring() {
        assert_eq!(token(1, 1), i64::MIN + 1);
        let tokens = [1, 2, 3].map(|id| token(3, id));
        let first = i64::MIN + 1;
        assert_eq!(tokens[0], first);
        let part = 6_148_914_691_236_517_205_u64;
        assert_eq!(tokens[1].wrapping_sub(tokens[0]) as u64, part);
        assert_eq!(tokens[2].wrapping_sub(tokens[1]) as u64, part);
        assert!(token(254, 254) > token(254, 253));
    }

    #[test]
    fn a_node_is_told_where_it_is_and_who_the_others_are() {
        let settings = settings(3, 2);
        let yaml = settings.yaml();
        for line in [
            "listen_address: 127.0.0.2",
            "rpc_address: 127.0.0.2",
            "      - seeds: \"127.0.0.1,127.0.0.2,127.0.0.3\"",
            "commitlog_directory: \"/data/node2/commitlog\"",
            "memtable_heap_space: 128MiB",
            "paxos_variant: v1",
            "authenticator: AllowAllAuthenticator",
        ] {
            assert!(yaml.lines().any(|there| there == line), "{line} in {yaml}");
        }
        assert_eq!(settings.address(), "127.0.0.2:9042".parse().unwrap());
        let yaml = NodeSettings {
            passwords: true,
            ..settings
        }
        .yaml();
        for line in [
            "authenticator: PasswordAuthenticator",
            "authorizer: CassandraAuthorizer",
        ] {
            assert!(yaml.lines().any(|there| there == line), "{line} in {yaml}");
        }
    }

    #[test]
    fn without_the_agent_it_is_not_installed() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(agent(dir.path()), Err(Error::NotInstalled { .. })));
        fs::write(dir.path().join("jamm-0.4.0.jar"), "").unwrap();
        assert_eq!(
            agent(dir.path()).unwrap(),
            dir.path().join("jamm-0.4.0.jar")
        );
    }
}
