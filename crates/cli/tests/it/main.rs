//! The real binary: its commands, and the behaviour of its processes.

mod bench;
mod cassandra;
mod cluster;
mod cluster_clients;
mod databases;
mod encrypted_links;
mod frameworks;
mod full_disk;
mod guards;
mod idle_connections;
mod import;
mod live_configuration;
mod lock_faults;
mod lock_reboot;
mod locks;
mod old_directories;
mod operations;
mod pages;
mod proxied;
mod proxy;
mod proxy_blocking;
mod proxy_cassandra;
mod proxy_lock_tables;
mod proxy_merged_writes;
mod proxy_messages;
mod read_atomic;
mod redis_benchmark;
mod redis_compare;
mod reliable_queues;
mod replicated;
mod replicated_client;
mod shows;
#[cfg(feature = "sql")]
mod sql;
mod support;
mod tls_clients;
