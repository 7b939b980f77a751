//! `KUMIKI.SNAPSHOT`: a consistent copy of all keys, in pieces. It is Kumiki's own; `kumiki pages
//! export` sends it.

use resp::Args;

use super::admin::help;
use super::table::SNAPSHOT;
use crate::connection::Connection;
use crate::shared::Context;

const NAME: &str = "KUMIKI.SNAPSHOT";

pub(super) fn snapshot_help(_: &mut Context, connection: &mut Connection, _: Args<'_>) {
    help(NAME, SNAPSHOT, connection);
}
