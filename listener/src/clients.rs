//! Limits the connections of one client, so that no client takes those of all others.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// The bits of an IPv6 address that name a client: a site gets at least such a network.
const IPV6_NETWORK_BITS: u32 = 64;

/// What a listener refuses by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// A connection beyond those of its client.
    Connection,
    /// A request whose URL and headers are too large, or whose headers are too many.
    Head,
    /// A request that is not HTTP. With HTTP/2 such a request is not noticed.
    Syntax,
}

/// Called for everything that is refused.
pub(super) type OnRefusal = Arc<dyn Fn(Refused) + Send + Sync>;

/// The open connections of a listener by client.
pub struct Clients {
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
    connections_max: usize,
    pub(super) on_refusal: OnRefusal,
}

/// A connection that counts until it is dropped.
pub struct Admitted {
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
    client: IpAddr,
}

impl Clients {
    /// Each client may have `connections_max` connections; `on_refusal` is called for each one more, and for each
    /// request that no handler sees.
    pub fn new(
        connections_max: usize,
        on_refusal: impl Fn(Refused) + Send + Sync + 'static,
    ) -> Self {
        Self { open: Arc::default(), connections_max, on_refusal: Arc::new(on_refusal) }
    }

    /// Counts a connection from this address, unless the client has too many.
    pub fn admit(&self, address: IpAddr) -> Option<Admitted> {
        let client = client_network(address);
        let mut open = self.open.lock();
        let connections = open.entry(client).or_default();
        if *connections >= self.connections_max {
            drop(open);
            (self.on_refusal)(Refused::Connection);
            return None;
        }
        *connections += 1;
        Some(Admitted { open: Arc::clone(&self.open), client })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Entry::Occupied(mut connections) = self.open.lock().entry(self.client) {
            *connections.get_mut() -= 1;
            if *connections.get() == 0 {
                connections.remove();
            }
        }
    }
}

/// Returns the address that stands for a client in limits: its IPv4 address, or its IPv6 network.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & (u128::MAX << (128 - IPV6_NETWORK_BITS));
            Ipv6Addr::from_bits(network).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connections_of_a_client_are_limited() {
        let refused = Arc::new(Mutex::new(Vec::new()));
        let counted = Arc::clone(&refused);
        let clients = Clients::new(2, move |refused| counted.lock().push(refused));
        let admit = |address: &str| clients.admit(address.parse().unwrap());
        let first = admit("192.0.2.1");
        let second = admit("::ffff:192.0.2.1");
        assert!(first.is_some() && second.is_some());
        assert!(admit("192.0.2.1").is_none() && admit("::ffff:192.0.2.1").is_none());
        assert_eq!(*refused.lock(), [Refused::Connection; 2]);
        assert!(admit("192.0.2.2").is_some());
        drop(first);
        assert!(admit("192.0.2.1").is_some());
        drop(second);
        assert!(clients.open.lock().is_empty());
    }

    #[test]
    fn an_ipv6_network_is_one_client() {
        let check = |address: &str, expected: &str| {
            assert_eq!(
                client_network(address.parse().unwrap()),
                expected.parse::<IpAddr>().unwrap()
            );
        };
        check("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::");
        check("2001:db8:1:2::", "2001:db8:1:2::");
        check("2001:db8:1:3::1", "2001:db8:1:3::");
        check("::ffff:192.0.2.1", "192.0.2.1");
        check("192.0.2.1", "192.0.2.1");
    }
}
