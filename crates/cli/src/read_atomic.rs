//! The keys that `kumiki serve` treats as read atomic.

use base::versions::ReadAtomic;
use server::Membership;

use crate::serve_options::ServeOptions;

/// Returns the keys that are read atomic here: by option, and in a cluster by its file.
///
/// # Errors
/// The text says which options contradict each other, and what to do.
pub(crate) fn declared(
    options: &ServeOptions,
    membership: Option<&Membership>,
) -> Result<ReadAtomic, String> {
    let given = &options.ramp.read_atomic;
    let Some(membership) = membership else {
        let prefixes = given.iter().map(|prefix| prefix.as_bytes());
        return Ok(ReadAtomic::new(prefixes));
    };
    if let Some(prefix) = given.first() {
        return Err(format!(
            "--read-atomic {prefix} is for a node without a cluster; the nodes of one must agree: \
             leave it out, and write read_atomic = [\"{prefix}\"] at the top of the cluster's file"
        ));
    }
    let declared = membership.topology.read_atomic();
    if options.replication.naive && !declared.is_empty() {
        return Err(
            "--naive does not suit read-atomic keys, which the cluster's file declares: it executes \
             after consensus and cannot keep their versions apart; leave it out, or take \
             read_atomic out of the file on all nodes"
                .to_owned(),
        );
    }
    Ok(declared.clone())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, CliCommand};

    /// Returns a file with one partition, of one node or three.
    fn file(read_atomic: &str, nodes: u16) -> String {
        let node = |id| {
            format!(
                "[[node]]\nid = {id}\nclient = \"127.0.0.1:{}\"\nfabric = \"127.0.0.1:{}\"\n\
                 replica = \"127.0.0.1:{}\"\n",
                7000 + id,
                17000 + id,
                27000 + id
            )
        };
        let ids: Vec<u16> = (1..=nodes).collect();
        let nodes: String = ids.iter().map(node).collect();
        format!(
            "{read_atomic}\n{nodes}[[partition]]\nid = 1\nslots = \"0-16383\"\nnodes = {ids:?}\n"
        )
    }

    /// Returns the keys that these arguments of node 1 declare.
    fn of(file: Option<&str>, args: &[&str]) -> Result<Vec<Vec<u8>>, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cluster.toml");
        let path = path.display().to_string();
        let mut line = vec!["kumiki", "serve"];
        if let Some(text) = file {
            std::fs::write(&path, text).unwrap();
            line.extend(["--cluster", &path, "--node", "1"]);
        }
        line.extend(args);
        let CliCommand::Serve(serve) = Cli::try_parse_from(line).unwrap().command else {
            panic!("another command")
        };
        let membership = serve.cluster.join()?;
        let declared = declared(&serve, membership.as_ref())?;
        Ok(declared.prefixes().map(<[u8]>::to_vec).collect())
    }

    #[test]
    fn keys_are_declared_by_option_or_in_the_file() {
        let two = ["--read-atomic", "ra:", "--read-atomic", "feed:"];
        assert_eq!(of(None, &two).unwrap(), [&b"ra:"[..], b"feed:"]);
        assert!(of(None, &[]).unwrap().is_empty());
        let declared = file("read_atomic = [\"ra:\"]", 1);
        assert_eq!(of(Some(&declared), &[]).unwrap(), [b"ra:"]);
        assert!(of(Some(&file("", 1)), &[]).unwrap().is_empty());
        // Nodes with different declarations would not keep the keys read atomic.
        for text in [&declared, &file("", 1)] {
            let said = of(Some(text), &["--read-atomic", "x"]).unwrap_err();
            for word in ["--read-atomic x", "leave it out", "read_atomic = [\"x\"]"] {
                assert!(said.contains(word), "{said}");
            }
        }
    }

    #[test]
    fn the_naive_way_has_no_read_atomic_keys() {
        let declared = file("read_atomic = [\"ra:\"]", 3);
        let said = of(Some(&declared), &["--naive"]).unwrap_err();
        for word in ["--naive", "read_atomic", "leave it out"] {
            assert!(said.contains(word), "{said}");
        }
        assert_eq!(of(Some(&file("", 3)), &["--naive"]), Ok(vec![]));
        assert_eq!(of(Some(&declared), &[]), Ok(vec![b"ra:".to_vec()]));
    }
}
