//! `adtrail health`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::load;
use crate::cli::Health;
use crate::http_client;

pub fn run(options: &Health) -> anyhow::Result<()> {
    let config = load(&options.settings)?;
    let path = if options.live { "/livez" } else { "/readyz" };
    http_client::get(local(config.admin_listen), path).map(drop)
}

/// Returns an address at which this machine reaches a listener.
fn local(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_all_addresses_is_reached_on_loopback() {
        let check = |listen: &str, expected: &str| {
            assert_eq!(local(listen.parse().unwrap()).to_string(), expected);
        };
        check("0.0.0.0:8081", "127.0.0.1:8081");
        check("[::]:8081", "[::1]:8081");
        check("10.0.0.7:8081", "10.0.0.7:8081");
    }
}
