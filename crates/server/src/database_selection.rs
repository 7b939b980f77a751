//! The numbers of databases that clients select.

use base::number::parse_int;
use resp::Args;

use crate::refusal::Refusal;

/// The databases of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatabaseLimits {
    /// Their number.
    pub(crate) count: u16,
    /// `true` if the server is a node of a cluster.
    pub(crate) in_cluster: bool,
}

/// Parses the number of a database, of which there are `databases`.
pub(crate) fn parse_database(arg: &[u8], databases: u16) -> Result<u16, Refusal> {
    let number = parse_int(arg).ok_or(Refusal::NotInteger)?;
    if i32::try_from(number).is_err() {
        return Err(Refusal::Text(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ));
    }
    let number = u16::try_from(number).ok();
    let number = number.filter(|number| *number < databases);
    number.ok_or(Refusal::Text("ERR DB index is out of range"))
}

/// Returns the database that is selected after the command of this name, of `databases`, if `selected` is
/// before.
pub(crate) fn database_after(
    command: &str,
    args: Args<'_>,
    (selected, databases): (u16, u16),
) -> u16 {
    match command {
        "select" => parse_database(args.at(1), databases).unwrap_or(selected),
        _ => selected,
    }
}
