//! Cassandra, its Java driver and YCSB: from Maven's repository, for Java 17.
//!
//! | where | what |
//! |---|---|
//! | `target/peers/cassandra/lib` | the jars of a node |
//! | `target/peers/java-driver/lib` | the jars of a program that uses the Java driver |
//! | `target/peers/ycsb/lib` | the jars of YCSB's core, and of the clients that our bindings for it use |
//! | `target/peers/<name>/pom.xml` | what Maven was told |
//! | `target/peers/<name>.installed` | the same, written once the jars are there |
//!
//! The Python driver and cqlsh are libraries as others are.

use anyhow::Result;

use super::maven::{self, Jars};

const DRIVER: [&str; 3] = ["org.apache.cassandra", "java-driver-core", "4.19.0"];

const SETS: &[Jars] = &[
    Jars {
        name: "cassandra",
        wanted: &[["org.apache.cassandra", "cassandra-all", "5.0.8"]],
    },
    Jars {
        name: "java-driver",
        wanted: &[
            DRIVER,
            // The driver needs these for compression.
            ["org.lz4", "lz4-java", "1.8.0"],
            ["org.xerial.snappy", "snappy-java", "1.1.10.8"],
        ],
    },
    Jars {
        name: "ycsb",
        wanted: &[
            DRIVER,
            ["site.ycsb", "core", "0.17.0"],
            ["redis.clients", "jedis", "5.2.0"],
        ],
    },
];

/// Installs what is missing, and prints what is there.
///
/// # Errors
/// If packages or jars cannot be had.
pub(super) fn install() -> Result<()> {
    maven::install()?;
    SETS.iter().try_for_each(Jars::install)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maven_is_told_what_is_wanted() {
        let ycsb = SETS.iter().find(|set| set.name == "ycsb").unwrap();
        let pom = ycsb.pom();
        let artifacts = pom.matches("<artifactId>").count();
        assert_eq!(artifacts, 1 + ycsb.wanted.len(), "{pom}");
        assert!(pom.contains("<artifactId>jedis</artifactId>\n      <version>5.2.0</version>"));
        let opened = pom.matches('<').count() - 2 * pom.matches("</").count();
        assert_eq!(opened, 0, "{pom}");
        assert_eq!(
            ycsb.told(),
            "java-driver-core 4.19.0, core 0.17.0, jedis 5.2.0"
        );
    }
}
