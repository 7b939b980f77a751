//! Tests of io_uring rings with sockets.

mod ring;
