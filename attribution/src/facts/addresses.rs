//! IP addresses as networks and proxies write them (section 1 of the contract), and those that many devices share.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What AppsFlyer and others put in place of a masked address.
const MASKED: Ipv4Addr = Ipv4Addr::new(1, 1, 1, 1);

/// Parses an address: IPv4 or IPv6, with or without brackets and a port, or the first of an `X-Forwarded-For` list. An
/// IPv4-mapped IPv6 address becomes IPv4.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let parsed = text.parse().ok().or_else(|| {
        let first = text.split(',').next().unwrap_or_default().trim();
        let plain = first.parse().ok().or_else(|| parse_in_brackets(first));
        plain.or_else(|| first.parse::<SocketAddr>().ok().map(|address| address.ip()))
    });
    parsed.map(|ip: IpAddr| ip.to_canonical())
}

/// Parses an address in brackets, with or without a port. `SocketAddr` has brackets around IPv6 only.
fn parse_in_brackets(text: &str) -> Option<IpAddr> {
    let (host, rest) = text.strip_prefix('[')?.split_once(']')?;
    let is_port =
        |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let is_complete = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
    host.parse().ok().filter(|_| is_complete)
}

/// Parses an address; `None` for one that many devices share: private, loopback, link-local, carrier-grade NAT,
/// unspecified, multicast or reserved, a masked one, or put in its place.
pub fn public_address(text: &str) -> Option<IpAddr> {
    parse_address(text).filter(|ip| match ip {
        IpAddr::V4(ip) => {
            let is_other_shared = match ip.octets() {
                [0 | 224..=255, ..] => true,
                [100, second, ..] => (64..128).contains(&second),
                _ => *ip == MASKED,
            };
            !(ip.is_private() || ip.is_loopback() || ip.is_link_local() || is_other_shared)
        }
        IpAddr::V6(ip) => {
            !(ip.is_unspecified()
                || ip.is_loopback()
                || ip.is_unicast_link_local()
                || ip.is_unique_local()
                || is_network(*ip))
        }
    })
}

/// Checks whether a global unicast address has no interface id: its 64 low bits are 0. Masking leaves 64 bits or fewer,
/// and no device has the address, which is the anycast address of its subnet's routers (RFC 4291, 2.6.1).
fn is_network(ip: Ipv6Addr) -> bool {
    let segments = ip.segments();
    (segments[0] & 0xe000) == 0x2000 && segments[4..] == [0; 4]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(parse_address(text), expected.map(|ip| ip.parse().unwrap()), "{text}");
    }

    #[test]
    fn addresses_are_parsed_as_proxies_write_them() {
        let v4 = Some("203.0.113.9");
        for text in [
            "203.0.113.9",
            " 203.0.113.9 ",
            "203.0.113.9:443",
            "::ffff:203.0.113.9",
            "[::ffff:203.0.113.9]:443",
            "203.0.113.9, 10.0.0.1",
            "203.0.113.9:443,10.0.0.1:80",
            "203.0.113.9,unknown",
            "[203.0.113.9]",
            "[203.0.113.9]:80",
            "[203.0.113.9]:80, 10.0.0.1",
        ] {
            check(text, v4);
        }
        let v6 = Some("2001:db8::1");
        for text in [
            "2001:DB8:0:0:0:0:0:1",
            "[2001:db8::1]",
            "[2001:db8::1]:443",
            "[2001:db8::1], 10.0.0.1",
        ] {
            check(text, v6);
        }
        for text in [
            "",
            "unknown",
            "unknown, 203.0.113.9",
            "203.0.113",
            "203.0.113.9:",
            "203.0.113.9:99999",
            "203.0.113.009",
            "[203.0.113.9",
            "203.0.113.9]",
            "[203.0.113.9]:",
            "[203.0.113.9]:65536",
            "[203.0.113.9]:+80",
            "[203.0.113.9]80",
            "[203.0.113.9:80]",
            "[]",
            "[]:80",
            "{ip}",
            ", 203.0.113.9",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn addresses_that_many_devices_share_are_not_public() {
        let v4 = "10.1.2.3 172.31.0.1 192.168.1.1 127.0.0.1 169.254.3.4 100.64.3.9 100.127.255.255 0.0.0.0 \
                  0.255.255.255 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 1.1.1.1";
        let v6 = ":: ::1 fe80::1 febf::1 fc00::1 fd00::1 ::ffff:10.0.0.1 ::ffff:1.1.1.1 [::]:443 \
                  2001:db8:1234:: 2001:db8:1234:5678:: [2001:db8::]:443 2000:: 3fff:ffff:ffff:ffff::";
        for text in v4.split(' ').chain(v6.split(' ')).filter(|text| !text.is_empty()) {
            assert_eq!(public_address(text), None, "{text}");
        }
        for text in [
            "1.0.0.0",
            "1.1.1.2",
            "172.32.0.1",
            "100.63.255.255",
            "100.128.0.0",
            "11.0.0.1",
            "223.255.255.255",
            "fec0::",
            "fe00::",
            "1fff::",
            "4000::",
            "2001:db8:0:0:1::",
            "2001:db8:1234:5678::1",
            "203.0.113.0",
            "2001:db8::1",
            "203.0.113.9:443",
        ] {
            assert!(public_address(text).is_some(), "{text}");
        }
    }
}
