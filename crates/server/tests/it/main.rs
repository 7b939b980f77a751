//! Servers in this process, as clients see them.

mod admin;
mod client_control;
mod cluster_commands;
mod cluster_failures;
mod cluster_idle;
mod cluster_parking;
mod cluster_routing;
mod cluster_tls;
mod cluster_transactions;
mod connections;
mod durability;
mod idle;
mod info;
mod long_transactions;
mod publish_subscribe;
mod replica;
mod saving;
mod scripts;
mod snapshots;
mod strangers;
mod support;
mod tls;
mod transactions;
