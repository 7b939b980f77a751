//! Jars from Maven's repository, for Java 17.
//!
//! | where | what |
//! |---|---|
//! | `target/peers/<name>/lib` | the jars of a set |
//! | `target/peers/<name>/pom.xml` | what Maven was told |
//! | `target/peers/<name>.installed` | the same, written once the jars are there |

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{build, process};

/// A set of jars: name, and what Maven is asked for, as group, artifact and version. Of what two of
/// these need in different versions, the first one's is taken.
pub(super) struct Jars {
    pub(super) name: &'static str,
    pub(super) wanted: &'static [[&'static str; 3]],
}

/// Objects of Java that a Redis server keeps: locks, maps, queues.
pub(super) const REDISSON: Jars = Jars {
    name: "redisson",
    wanted: &[["org.redisson", "redisson", "3.52.0"]],
};

/// Sessions of web servers that a Redis server keeps, and the client that they use.
pub(super) const SPRING_SESSION: Jars = Jars {
    name: "spring-session",
    wanted: &[
        [
            "org.springframework.session",
            "spring-session-data-redis",
            "4.0.4",
        ],
        ["io.lettuce", "lettuce-core", "7.2.3.RELEASE"],
        ["org.springframework.data", "spring-data-redis", "4.0.6"],
    ],
};

/// Debian's packages: Java with its compiler, which also runs a program from its source, and Maven.
const PACKAGES: [&str; 2] = ["openjdk-17-jdk-headless", "maven"];
/// Of one version, so that a new one changes nothing unasked.
const GOAL: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// Installs Java and Maven if they are missing, and prints where Java is.
///
/// # Errors
/// If their packages cannot be had.
pub(super) fn install() -> Result<()> {
    if !has_programs() {
        println!("peers: installing {}", PACKAGES.join(" "));
        super::apt::install(&PACKAGES)?;
    }
    let Some(compiler) = compiler().filter(|_| has_programs()) else {
        bail!(
            "javac 17 or mvn is still missing; install the packages {}",
            PACKAGES.join(" and ")
        );
    };
    println!("peers: {:<16} {}", "java 17", compiler.display());
    Ok(())
}

/// Returns `true` if the compiler of Java 17, beside which Java itself lies, and Maven are installed.
fn has_programs() -> bool {
    let maven = process::output("mvn", Command::new("mvn").arg("--version"));
    compiler().is_some() && maven.is_ok()
}

/// Returns the compiler of Java 17: the one on the path, that of `JAVA_HOME`, or one of Debian's.
fn compiler() -> Option<PathBuf> {
    let home = env::var_os("JAVA_HOME").map(PathBuf::from);
    let debian = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let homes = home.into_iter().chain(debian.map(|entry| entry.path()));
    let of_homes = homes.map(|home| home.join("bin/javac"));
    std::iter::once(PathBuf::from("javac"))
        .chain(of_homes)
        .find(|program| {
            let version = process::output("javac", Command::new(program).arg("--version"));
            version.is_ok_and(|text| text.starts_with("javac 17"))
        })
}

impl Jars {
    /// Installs them unless they are there, and prints which ones they are.
    ///
    /// # Errors
    /// If Maven cannot fetch them.
    pub(super) fn install(&self) -> Result<()> {
        let peers = build::root().join("target/peers");
        let (dir, mark) = (
            peers.join(self.name),
            peers.join(format!("{}.installed", self.name)),
        );
        let pom = self.pom();
        let there = fs::read_to_string(&mark).is_ok_and(|text| text == pom);
        if !there || !dir.join("lib").is_dir() {
            println!("peers: installing {}", self.told());
            // Jars of another version would stand beside the new ones.
            let _ = fs::remove_dir_all(dir.join("lib"));
            fs::create_dir_all(&dir)?;
            fs::write(dir.join("pom.xml"), &pom)?;
            let mut maven = Command::new("mvn");
            maven.args(["--quiet", "--batch-mode", "--file", "pom.xml", GOAL]);
            maven.args(["-DoutputDirectory=lib", "-DincludeScope=runtime"]);
            maven.arg("-Dstyle.color=never");
            process::run("mvn", maven.current_dir(&dir)).with_context(|| {
                format!(
                    "cannot fetch {}; Maven must reach a repository: where it needs a mirror or a \
                     proxy, name that in ~/.m2/settings.xml, then run this again",
                    self.told()
                )
            })?;
            fs::write(&mark, &pom)?;
        }
        println!("peers: {:<16} {}", self.name, self.told());
        Ok(())
    }

    /// Returns a description of its content.
    pub(super) fn told(&self) -> String {
        let names = self
            .wanted
            .iter()
            .map(|[_, name, version]| format!("{name} {version}"));
        names.collect::<Vec<_>>().join(", ")
    }

    /// Returns the project file for Maven.
    pub(super) fn pom(&self) -> String {
        let dependency = |[group, artifact, version]: &[&str; 3]| {
            format!(
                "    <dependency>\n      <groupId>{group}</groupId>\n      \
                 <artifactId>{artifact}</artifactId>\n      <version>{version}</version>\n    \
                 </dependency>\n"
            )
        };
        let dependencies: String = self.wanted.iter().map(dependency).collect();
        format!(
            "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n  \
             <modelVersion>4.0.0</modelVersion>\n  <groupId>kumiki</groupId>\n  \
             <artifactId>{}</artifactId>\n  <version>1</version>\n  <packaging>pom</packaging>\n  \
             <dependencies>\n{dependencies}  </dependencies>\n</project>\n",
            self.name
        )
    }
}
