//! Values of options that several commands have: addresses, passwords, times.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// Parses an address to listen on: `HOST:PORT`, where the host is an address or a name, or a port
/// of 127.0.0.1.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    let wanted = "write HOST:PORT, for example 127.0.0.1:6380, or 6380 for that port of 127.0.0.1";
    let (host, port) = text.rsplit_once(':').ok_or(wanted)?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    // Without brackets, the colon belongs to the address.
    if host.is_empty() || port.parse::<u16>().is_err() || (host.contains(':') && !bracketed) {
        return Err(wanted.to_owned());
    }
    let found = text.to_socket_addrs();
    let found: Vec<SocketAddr> = found
        .map_err(|error| format!("there is no host {host}: {error}"))?
        .collect();
    // A name such as localhost has an address of each kind; most clients try IPv4.
    let first = found.iter().find(|address| address.is_ipv4());
    let first = first.or(found.first()).copied();
    first.ok_or_else(|| format!("there is no host {host}"))
}

/// Parses a password. An empty one is refused: every client would know it.
pub(crate) fn parse_password(text: &str) -> Result<String, String> {
    match text {
        "" => {
            Err("an empty password protects nothing: give one, or leave the option out".to_owned())
        }
        text => Ok(text.to_owned()),
    }
}

/// Parses a number, which may have decimals, and its unit.
pub(crate) fn parse_time(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let nanos = match &text[unit..] {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    // Digits and dots alone: neither a sign nor an exponent nor a word.
    let number: f64 = text[..unit].parse().ok()?;
    Some(Duration::from_nanos((number * nanos).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_ports_or_hosts_with_ports() {
        for (text, address) in [
            ("6380", "127.0.0.1:6380"),
            ("localhost:6380", "127.0.0.1:6380"),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("[::1]:6380", "[::1]:6380"),
        ] {
            assert_eq!(
                parse_address(text),
                Ok(address.parse().expect("an address"))
            );
        }
        for text in [
            "localhost",
            ":6380",
            "::1",
            "::1:6380",
            "127.0.0.1",
            "70000",
            "a:b",
            "",
        ] {
            let error = parse_address(text).expect_err(text);
            assert!(error.contains("write HOST:PORT"), "{text}: {error}");
        }
        let error = parse_address("no-such-host.invalid:1").expect_err("no host");
        assert!(
            error.contains("there is no host no-such-host.invalid"),
            "{error}"
        );
    }
}
