//! The small machine that has an RDMA device: QEMU, a stock Debian kernel, and Soft-RoCE, which is
//! verbs in software on any network interface.
//!
//! | where | what |
//! |---|---|
//! | `target/peers/rdma/vmlinuz` | Debian's kernel |
//! | `target/peers/rdma/base.cpio` | what the machine starts from: busybox, `rdma`, libibverbs with the provider for Soft-RoCE, kernel modules, `init` |
//! | `target/peers/rdma.installed` | which kernel and which `init` they are of, written once they are there |
//!
//! The kernel's package is unpacked, not installed: nothing of this machine's own start changes.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::rdma::archive::Archive;
use crate::rdma::{INIT, libraries, place};
use crate::{build, process};

/// What is installed on this machine: the emulator, and the programs that go into the other one.
const PACKAGES: [&str; 4] = [
    "qemu-system-x86",
    "busybox-static",
    "iproute2",
    "ibverbs-providers",
];
/// What tells that they are there.
const INSTALLED: [&str; 4] = [
    "/usr/bin/qemu-system-x86_64",
    "/bin/busybox",
    "/etc/libibverbs.d/rxe.driver",
    "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so",
];
/// Requires the newest kernel's package.
const KERNEL: &str = "linux-image-amd64";
/// The modules that are needed, without those that they need. Soft-RoCE asks the kernel for
/// CRC32 by name, which is no dependency that a module tells.
const MODULES: [&str; 4] = ["crc32_pclmul", "crc32_generic", "rdma_rxe", "ib_uverbs"];
/// The folders of the kernel's package in which they lie.
const FOLDERS: [&str; 5] = [
    "arch/x86/crypto",
    "crypto",
    "drivers/infiniband",
    "lib",
    "net",
];
/// Loaded by name at run time: the threads of the C library need it to end.
const LATE_LIBRARY: &str = "/lib/x86_64-linux-gnu/libgcc_s.so.1";

/// Installs it unless it is there, and prints which one it is.
///
/// # Errors
/// If packages cannot be had, or lack something.
pub(super) fn install() -> Result<()> {
    if !INSTALLED.iter().all(|file| Path::new(file).exists()) {
        println!("peers: installing {}", PACKAGES.join(" "));
        super::apt::install(&PACKAGES)?;
    }
    let peers = build::root().join("target/peers");
    let mark = peers.join("rdma.installed");
    let mut init = DefaultHasher::new();
    (INIT, MODULES).hash(&mut init);
    let init = format!(" init {:016x}", init.finish());
    let there = fs::read_to_string(&mark).unwrap_or_default();
    // A newer kernel is no reason to make it again.
    if !there.ends_with(&init) || !place().join("base.cpio").exists() {
        let dir = peers.join("rdma");
        fs::create_dir_all(&dir)?;
        let kernel = make(&dir)?;
        fs::write(&mark, format!("{kernel}{init}"))?;
    }
    let there = fs::read_to_string(&mark)?;
    let kernel = there.split(' ').next().unwrap_or_default();
    println!("peers: {:<16} {kernel}", "soft-roce");
    Ok(())
}

/// Makes the machine's files, and returns the kernel's name.
fn make(dir: &Path) -> Result<String> {
    let package = kernel_package()?;
    println!("peers: unpacking {package}");
    let kernel = package.trim_start_matches("linux-image-");
    let tree = unpack(&package, kernel, dir)?;
    fs::copy(
        tree.join(format!("boot/vmlinuz-{kernel}")),
        dir.join("vmlinuz"),
    )?;
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys", "tmp", "job", "sbin"] {
        archive.folder(folder);
    }
    archive.file("init", INIT.as_bytes());
    add_modules(
        &mut archive,
        &tree.join(format!("lib/modules/{kernel}/kernel")),
    )?;
    add_programs(&mut archive)?;
    // Renamed into place, so that a file which is there is whole.
    fs::write(dir.join("base.new"), archive.finish())?;
    fs::rename(dir.join("base.new"), dir.join("base.cpio"))?;
    fs::remove_dir_all(tree)?;
    Ok(kernel.to_owned())
}

fn kernel_package() -> Result<String> {
    let mut command = Command::new("apt-cache");
    let text = process::output("apt-cache", command.args(["depends", KERNEL]))?;
    let mut names = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "));
    let name = names.find(|name| name.starts_with("linux-image-"));
    let name = name.with_context(|| format!("the package {KERNEL} names no kernel"))?;
    Ok(name.to_owned())
}

/// Unpacks the kernel and the folders with its modules, of four hundred megabytes a tenth.
fn unpack(package: &str, kernel: &str, dir: &Path) -> Result<PathBuf> {
    let tree = dir.join("kernel");
    // An older package would stand beside the new one.
    let _ = fs::remove_dir_all(&tree);
    fs::create_dir_all(&tree)?;
    super::apt::download(package, &tree)?;
    let is_package = |path: &PathBuf| path.extension().is_some_and(|end| end == "deb");
    let mut files = tree.read_dir()?.flatten().map(|entry| entry.path());
    let Some(file) = files.find(is_package) else {
        bail!("apt-get has downloaded no {package}");
    };
    let content = tree.join("content.tar");
    let packed = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(&file)
        .stdout(fs::File::create(&content)?)
        .status();
    if !packed.context("cannot start dpkg-deb")?.success() {
        bail!("dpkg-deb cannot unpack {}", file.display());
    }
    let mut tar = Command::new("tar");
    tar.arg("--extract")
        .arg("--file")
        .arg(&content)
        .arg("--directory")
        .arg(&tree);
    tar.arg(format!("./boot/vmlinuz-{kernel}"));
    tar.args(FOLDERS.map(|folder| format!("./lib/modules/{kernel}/kernel/{folder}")));
    process::run("tar", &mut tar)?;
    Ok(tree)
}

/// Adds the modules and those that they need, and the order in which they are loaded.
fn add_modules(archive: &mut Archive, tree: &Path) -> Result<()> {
    let mut files = Vec::new();
    list(tree, &mut files)?;
    let mut order = Vec::new();
    for module in MODULES {
        add_module(module, &files, &mut order, archive)?;
    }
    let names: String = order.iter().map(|name| format!("{name}.ko\n")).collect();
    archive.file("modules/order", names.as_bytes());
    Ok(())
}

fn add_module(
    name: &str,
    files: &[PathBuf],
    order: &mut Vec<String>,
    archive: &mut Archive,
) -> Result<()> {
    if order.iter().any(|there| there == name) {
        return Ok(());
    }
    let is_it = |path: &&PathBuf| {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        path.extension().is_some_and(|end| end == "ko") && stem.replace('-', "_") == name
    };
    let file = files.iter().find(is_it);
    let file = file.with_context(|| format!("the kernel's package has no module {name}"))?;
    let content = fs::read(file)?;
    for needed in needs(&content) {
        add_module(&needed, files, order, archive)?;
    }
    archive.file(&format!("modules/{name}.ko"), &content);
    order.push(name.to_owned());
    Ok(())
}

/// Returns the modules that a module names in its `depends=`.
fn needs(module: &[u8]) -> Vec<String> {
    const WORD: &[u8] = b"\0depends=";
    let Some(at) = module.windows(WORD.len()).position(|bytes| bytes == WORD) else {
        return Vec::new();
    };
    let text = module[at + WORD.len()..]
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let names = text.split(',').filter(|name| !name.is_empty());
    names.map(|name| name.replace('-', "_")).collect()
}

fn list(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in dir.read_dir()? {
        let path = entry?.path();
        match path.is_dir() {
            true => list(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

/// Adds busybox, the program that makes the device, and libibverbs with its provider, each where it
/// lies on this machine, and all libraries that they need.
fn add_programs(archive: &mut Archive) -> Result<()> {
    archive.copy("bin/busybox", Path::new("/bin/busybox"))?;
    let rdma = ["/usr/bin/rdma", "/sbin/rdma", "/bin/rdma"].map(Path::new);
    let rdma = rdma.into_iter().find(|path| path.exists());
    let rdma = rdma.context("the package iproute2 has no program rdma")?;
    archive.copy("bin/rdma", rdma)?;
    let verbs = Path::new("/usr/lib/x86_64-linux-gnu/libibverbs.so.1");
    let [_, _, driver, provider] = INSTALLED.map(Path::new);
    let mut needed: BTreeSet<PathBuf> = [verbs, Path::new(LATE_LIBRARY)].map(Path::to_owned).into();
    for program in [rdma, verbs, provider] {
        needed.extend(libraries(program)?);
    }
    needed.insert(provider.to_owned());
    needed.insert(driver.to_owned());
    for file in needed {
        archive.copy(file.to_string_lossy().trim_start_matches('/'), &file)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_tells_what_it_needs() {
        let module = b"ELF\0license=GPL\0depends=ib-core,udp_tunnel\0name=x\0";
        assert_eq!(needs(module), ["ib_core", "udp_tunnel"]);
        assert!(needs(b"ELF\0depends=\0").is_empty());
        assert!(needs(b"ELF").is_empty());
    }
}
