//! Where a request may go. URLs of callbacks arrive inside public clicks, so that anybody could make this process send
//! a request to any server: those of its own network, and itself, are refused by name and by address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use reqwest::Url;

/// A host name, or all names below one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPattern {
    name: Box<str>,
    has_subdomains: bool,
}

impl HostPattern {
    /// Parses `a.example`, or `*.a.example` for all names below it.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        let below = text.strip_prefix("*.");
        let name = below.unwrap_or(text);
        let is_allowed = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
        };
        let has_labels =
            name.split('.').count() > 1 && name.split('.').all(|label| !label.is_empty());
        let is_address = name.parse::<IpAddr>().is_ok();
        if !has_labels || is_address || !name.bytes().all(is_allowed) {
            return Err(format!("hosts: expected a host name such as \"*.example.com\": {text:?}"));
        }
        Ok(Self { name: name.into(), has_subdomains: below.is_some() })
    }

    pub fn matches(&self, host: &str) -> bool {
        if !self.has_subdomains {
            return host == &*self.name;
        }
        let prefix = host.strip_suffix(&*self.name);
        prefix.is_some_and(|prefix| prefix.len() > 1 && prefix.ends_with('.'))
    }
}

/// The hosts of an endpoint.
#[derive(Debug, Clone)]
pub(crate) struct AllowedHosts {
    pub patterns: Vec<HostPattern>,
    /// The host of the URL of the preset or the settings, which may be an address.
    pub own: Option<Box<str>>,
    /// Hosts that may be on loopback addresses, without TLS and with any port.
    pub loopback: Box<[Box<str>]>,
    /// The network has no TLS.
    pub is_plain_http: bool,
}

impl AllowedHosts {
    /// Checks whether a host, an IPv6 address in brackets, may be on loopback addresses.
    pub fn is_loopback(&self, host: &str) -> bool {
        self.loopback.iter().any(|allowed| **allowed == *bare(host))
    }

    /// Checks whether requests may go to a host at all.
    pub fn knows(&self, host: &str) -> bool {
        self.own.as_deref() == Some(host)
            || self.patterns.iter().any(|pattern| pattern.matches(host))
            || self.is_loopback(host)
    }

    /// Checks a URL before a request, and returns its host. A name's addresses are checked when it is resolved.
    ///
    /// # Errors
    /// Why no request may go there, without the URL.
    pub fn check<'u>(&self, url: &'u Url) -> Result<&'u str, String> {
        if !url.username().is_empty() || url.password().is_some() {
            return Err("the URL has a user or a password".to_owned());
        }
        let host = url.host_str().ok_or("the URL has no host")?;
        let is_loopback = self.is_loopback(host);
        if !self.knows(host) {
            return Err("the host is not one of the preset's".to_owned());
        }
        if let Ok(address) = bare(host).parse::<IpAddr>() {
            check_address(address, is_loopback).map_err(str::to_owned)?;
        }
        if is_loopback && matches!(url.scheme(), "http" | "https") {
            return Ok(host);
        }
        match (url.scheme(), url.port_or_known_default()) {
            ("https", Some(443)) => Ok(host),
            ("http", Some(80)) if self.is_plain_http => Ok(host),
            ("http", Some(80)) => Err("expected https".to_owned()),
            ("http" | "https", _) => Err("expected port 443, or 80 without TLS".to_owned()),
            _ => Err("expected https".to_owned()),
        }
    }
}

/// Removes the brackets of an IPv6 address.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Ranges of IPv4 that are not public servers, by first address and length of the prefix.
const REFUSED_V4: [(Ipv4Addr, u32, &str); 18] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "an address of this network"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private address"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "an address of carrier-grade NAT"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "a loopback address"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "a link-local address"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private address"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "an address of a protocol"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "an address for documentation"),
    (Ipv4Addr::new(192, 31, 196, 0), 24, "an address of a protocol"),
    (Ipv4Addr::new(192, 52, 193, 0), 24, "an address of a relay"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "an address of a relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private address"),
    (Ipv4Addr::new(192, 175, 48, 0), 24, "an address of a protocol"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "an address for benchmarks"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "an address for documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "an address for documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "a multicast address"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "a reserved address"),
];

/// Ranges of IPv6 within the global ones (2000::/3) that are not public servers, or that lead to addresses of IPv4. The
/// first one has those of Teredo, AMT and AS112.
const REFUSED_V6: [(Ipv6Addr, u32, &str); 5] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "an address of a protocol"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "an address for documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "an address of a relay"),
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48, "an address of a protocol"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "an address for documentation"),
];

/// Checks an address before a connection. `allows_loopback` is for hosts of `callbacks.allow_loopback`.
///
/// # Errors
/// The class of the address, if no request may go there.
pub(crate) fn check_address(address: IpAddr, allows_loopback: bool) -> Result<(), &'static str> {
    if allows_loopback && address.is_loopback() {
        return Ok(());
    }
    let refused = match address {
        IpAddr::V4(v4) => REFUSED_V4
            .iter()
            .find(|(first, bits, _)| {
                starts_with(v4.to_bits().into(), first.to_bits().into(), 32 - bits)
            })
            .map(|(_, _, class)| *class),
        IpAddr::V6(v6) => refused_v6(v6),
    };
    refused.map_or(Ok(()), Err)
}

fn refused_v6(address: Ipv6Addr) -> Option<&'static str> {
    const GLOBAL: Ipv6Addr = Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0);
    let bits = address.to_bits();
    if !starts_with(bits, GLOBAL.to_bits(), 128 - 3) {
        // Loopback, unspecified, mapped, NAT64, unique local, link-local, site-local, multicast and reserved ones.
        return Some(if address.is_loopback() {
            "a loopback address"
        } else {
            "an address that is not global"
        });
    }
    if is_isatap(bits) {
        return Some("an address of a tunnel");
    }
    let range = REFUSED_V6
        .iter()
        .find(|(first, prefix, _)| starts_with(bits, first.to_bits(), 128 - prefix));
    range.map(|(_, _, class)| *class)
}

/// Checks for an interface identifier of ISATAP, `0:5efe` or `200:5efe` before an address of IPv4: a router of its site
/// may send what goes there to that address, whatever the prefix.
fn is_isatap(address: u128) -> bool {
    /// Set if the address of IPv4 is unique in the world.
    const UNIVERSAL: u128 = 0x0200_0000;
    let before_v4 = (address >> 32) & 0xffff_ffff;
    (before_v4 & !UNIVERSAL) == 0x5efe
}

/// Compares two addresses without the lowest bits.
fn starts_with(address: u128, first: u128, host_bits: u32) -> bool {
    address >> host_bits == first >> host_bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(addresses: &str, expected: &str) {
        for address in addresses.split(' ') {
            assert_eq!(check_address(address.parse().unwrap(), false), Err(expected), "{address}");
        }
    }

    #[test]
    fn addresses_that_are_not_public_are_refused() {
        check_refused("0.0.0.0 0.255.255.255", "an address of this network");
        check_refused(
            "10.0.0.0 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1",
            "a private address",
        );
        check_refused("100.64.0.0 100.127.255.255", "an address of carrier-grade NAT");
        check_refused("127.0.0.1 127.255.255.254 ::1", "a loopback address");
        check_refused("169.254.169.254 169.254.0.0", "a link-local address");
        check_refused("192.0.0.8 192.31.196.1 2001::1 2001:1ff::1", "an address of a protocol");
        check_refused("192.88.99.1 2002:7f00:1::", "an address of a relay");
        check_refused("192.52.193.0 192.52.193.255", "an address of a relay");
        check_refused("192.175.48.1 192.175.48.255", "an address of a protocol");
        check_refused("2001:3::1 2001:4:112::1", "an address of a protocol");
        check_refused("2620:4f:8000:: 2620:4f:8000:ffff::1", "an address of a protocol");
        check_refused("198.18.0.1 198.19.255.255", "an address for benchmarks");
        check_refused(
            "192.0.2.1 198.51.100.1 203.0.113.9 2001:db8::1 3fff::1",
            "an address for documentation",
        );
        check_refused("224.0.0.1 239.255.255.255", "a multicast address");
        check_refused("240.0.0.1 255.255.255.255", "a reserved address");
    }

    #[test]
    fn addresses_of_ipv6_that_lead_elsewhere_are_refused() {
        let mapped = "::ffff:127.0.0.1 ::ffff:8.8.8.8 ::127.0.0.1 ::ffff:0:127.0.0.1";
        let nat64 = "64:ff9b::7f00:1 64:ff9b:1::1";
        let local = "fc00::1 fdff::1 fe80::1 febf::1 fec0::1";
        let other = ":: 100::1 ff02::1 ff0e::1 1fff::1 4000::1 5f00::1";
        for addresses in [mapped, nat64, local, other] {
            check_refused(addresses, "an address that is not global");
        }
        let isatap = "2606:4700::5efe:7f00:1 2606:4700::200:5efe:10.0.0.1 \
                      2400:3200:1:2:0:5efe:192.168.0.1 2400:3200:1:2:200:5efe:8.8.8.8";
        check_refused(isatap, "an address of a tunnel");
    }

    #[test]
    fn public_addresses_are_allowed() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "172.15.255.255",
            "172.32.0.0",
            "192.31.195.255",
            "192.31.197.0",
            "192.52.192.255",
            "192.52.194.0",
            "192.167.255.255",
            "192.175.47.255",
            "192.175.49.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2606:4700::100:5efe:7f00:1",
            "2606:4700::1:5efe:7f00:1",
            "2606:4700::5eff:7f00:1",
            "2620:4f:7fff:ffff::1",
            "2620:4f:8001::1",
            "2001:200::1",
            "2400:3200::1",
            "3ffe::1",
        ] {
            assert_eq!(check_address(address.parse().unwrap(), false), Ok(()), "{address}");
        }
    }

    #[test]
    fn only_loopback_is_allowed_for_tests() {
        let check = |address: &str| check_address(address.parse().unwrap(), true);
        assert_eq!((check("127.0.0.1"), check("::1")), (Ok(()), Ok(())));
        assert_eq!(check("10.0.0.1"), Err("a private address"));
        assert_eq!(check("::ffff:127.0.0.1"), Err("an address that is not global"));
    }

    #[test]
    fn patterns_match_whole_labels() {
        let matches =
            |pattern: &str, host: &str| HostPattern::parse(pattern).unwrap().matches(host);
        assert!(matches("api.e.qq.com", "api.e.qq.com"));
        assert!(
            !matches("api.e.qq.com", "xapi.e.qq.com") && !matches("api.e.qq.com", "a.api.e.qq.com")
        );
        assert!(matches("*.e.qq.com", "api.e.qq.com") && matches("*.e.qq.com", "a.b.e.qq.com"));
        let others = "e.qq.com .e.qq.com xe.qq.com evile.qq.com a.evile.qq.com api-e.qq.com \
                      e.qq.com.a.example api.e.qq.com.";
        for host in others.split(' ') {
            assert!(!matches("*.e.qq.com", host), "{host}");
        }
        for wrong in
            ["", "*", "*.", "com", "*.com", "a..com", "A.com", "127.0.0.1", "a.com/b", "a.com:1"]
        {
            assert!(HostPattern::parse(wrong).is_err(), "{wrong}");
        }
    }

    fn allowed(is_plain_http: bool) -> AllowedHosts {
        AllowedHosts {
            patterns: vec![HostPattern::parse("*.e.qq.com").unwrap()],
            own: Some("hook.example".into()),
            loopback: ["localhost".into(), "127.0.0.1".into()].into(),
            is_plain_http,
        }
    }

    #[track_caller]
    fn check_url(url: &str, expected: Result<&str, &str>) {
        let url = Url::parse(url).unwrap();
        assert_eq!(allowed(false).check(&url), expected.map_err(str::to_owned), "{url}");
    }

    #[test]
    fn urls_lead_to_known_hosts() {
        check_url("https://api.e.qq.com/conv?cb=1", Ok("api.e.qq.com"));
        check_url("https://api.e.qq.com:443/", Ok("api.e.qq.com"));
        check_url("https://API.e.QQ.com/", Ok("api.e.qq.com"));
        check_url("https://hook.example/", Ok("hook.example"));
        check_url("http://localhost:1234/", Ok("localhost"));
        check_url("http://127.0.0.1:1234/", Ok("127.0.0.1"));
        let host = Err("the host is not one of the preset's");
        for url in [
            "https://evil.example/",
            "https://evile.qq.com/",
            "https://api.e.qq.com.evil.example/",
            "https://e.qq.com./",
            "https://10.0.0.1/",
            "https://[::1]/",
            "https://0x7f000002/",
            "https://2130706434/",
            "https://127.2/",
            "https://evil.example#.e.qq.com",
            "https://evil.example?.e.qq.com",
            "https://evil.example\\.e.qq.com",
        ] {
            check_url(url, host);
        }
        check_url("https://api.e.qq.com@evil.example/", Err("the URL has a user or a password"));
        check_url("https://u:p@api.e.qq.com/", Err("the URL has a user or a password"));
        check_url("http://api.e.qq.com/", Err("expected https"));
        check_url("ftp://api.e.qq.com/", Err("expected https"));
        check_url("https://api.e.qq.com:8443/", Err("expected port 443, or 80 without TLS"));
        check_url("https://api.e.qq.com:80/", Err("expected port 443, or 80 without TLS"));
        check_url("ftp://localhost/", Err("expected https"));
    }

    #[test]
    fn an_address_in_a_url_is_checked() {
        let hosts = AllowedHosts { own: Some("10.0.0.1".into()), ..allowed(false) };
        let url = Url::parse("https://10.0.0.1/").unwrap();
        assert_eq!(hosts.check(&url), Err("a private address".to_owned()));
        let hosts = AllowedHosts { own: Some("1.1.1.1".into()), ..allowed(false) };
        assert_eq!(hosts.check(&Url::parse("https://1.1.1.1/").unwrap()), Ok("1.1.1.1"));
    }

    #[test]
    fn a_network_may_have_no_tls() {
        let url = Url::parse("http://api.e.qq.com/").unwrap();
        assert_eq!(allowed(true).check(&url), Ok("api.e.qq.com"));
        let url = Url::parse("http://api.e.qq.com:8080/").unwrap();
        assert!(allowed(true).check(&url).is_err());
    }
}
