//! Commands on streams.

mod add;
mod claims;
mod groups;
mod info;
mod pending;
mod reads;
mod replies;

use crate::call::{W, calls};
use add::{xadd, xdel, xsetid, xtrim};
pub use claims::unknown_claim_option;
use claims::{xautoclaim, xclaim};
use groups::{
    create as xgroup_create, create_consumer as xgroup_create_consumer,
    delete_consumer as xgroup_delete_consumer, destroy as xgroup_destroy, set_id as xgroup_set_id,
};
use info::{consumers as xinfo_consumers, groups as xinfo_groups, stream as xinfo_stream};
use pending::{xack, xpending};
use reads::{check_xreadgroup, last_id, xlen, xrange, xread, xreadgroup, xrevrange};

calls! {
    XLEN = 1024 => xlen;
    XRANGE = 1025 => xrange;
    XREVRANGE = 1026 => xrevrange;
    XREAD = 1027 => xread;
    XPENDING = 1028 => xpending;
    XINFO_STREAM = 1029 => xinfo_stream;
    XINFO_GROUPS = 1030 => xinfo_groups;
    XINFO_CONSUMERS = 1031 => xinfo_consumers;
    XADD = 1032 | W => xadd;
    XDEL = 1033 | W => xdel;
    XTRIM = 1034 | W => xtrim;
    XSETID = 1035 | W => xsetid;
    XGROUP_CREATE = 1036 | W => xgroup_create;
    XGROUP_SETID = 1037 | W => xgroup_set_id;
    XGROUP_DESTROY = 1038 | W => xgroup_destroy;
    XGROUP_CREATECONSUMER = 1039 | W => xgroup_create_consumer;
    XGROUP_DELCONSUMER = 1040 | W => xgroup_delete_consumer;
    XREADGROUP = 1041 | W => xreadgroup;
    XACK = 1042 | W => xack;
    XCLAIM = 1043 | W => xclaim;
    XAUTOCLAIM = 1044 | W => xautoclaim;
    CHECK_XREADGROUP = 1045 => check_xreadgroup;
    LAST_ID = 1046 => last_id;
}

#[cfg(test)]
mod tests;
