//! The network past the kernel, between network namespaces of this machine.

#[path = "../../../reactor/tests/it/conformance.rs"]
mod conformance;
mod killed;
mod linked;
