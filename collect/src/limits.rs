//! Limits of how many requests an address, and how many events an app, may have in a second.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

use governor::clock::{Clock, DefaultClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use listener::client_network;

/// After this many requests, the addresses are forgotten that could have all their requests at once again: after a
/// second at the latest. So there are at most this many, and those of the last second.
const EVICTION_INTERVAL: u32 = 1 << 16;

type Addresses<C> =
    RateLimiter<IpAddr, DashMapStateStore<IpAddr>, C, NoOpMiddleware<<C as Clock>::Instant>>;

/// A limit for each address, where an IPv6 network counts as one.
pub(crate) struct AddressLimit<C: Clock = DefaultClock> {
    addresses: Addresses<C>,
    requests: AtomicU32,
}

impl<C: Clock> AddressLimit<C> {
    /// A second's requests may arrive at once.
    pub fn new(per_second_max: NonZeroU32, clock: C) -> Self {
        let addresses = RateLimiter::dashmap_with_clock(Quota::per_second(per_second_max), clock);
        Self { addresses, requests: AtomicU32::new(0) }
    }

    /// Counts a request, unless there are too many.
    pub fn admits(&self, address: IpAddr) -> bool {
        let requests = self.requests.fetch_add(1, Ordering::Relaxed);
        if requests % EVICTION_INTERVAL == EVICTION_INTERVAL - 1 {
            self.addresses.retain_recent();
        }
        self.addresses.check_key(&client_network(address)).is_ok()
    }
}

/// A limit of the events of one app.
pub(crate) struct AppLimit(DefaultDirectRateLimiter);

impl AppLimit {
    pub fn new(per_second_max: NonZeroU32) -> Self {
        Self(RateLimiter::direct(Quota::per_second(per_second_max)))
    }

    /// Counts an event, unless there are too many.
    pub fn admits(&self) -> bool {
        self.0.check().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use governor::clock::FakeRelativeClock;

    use super::*;

    fn limit(per_second_max: u32) -> (AddressLimit<FakeRelativeClock>, FakeRelativeClock) {
        let clock = FakeRelativeClock::default();
        let per_second_max = NonZeroU32::new(per_second_max).unwrap();
        (AddressLimit::new(per_second_max, clock.clone()), clock)
    }

    #[test]
    fn each_address_has_its_own_rate() {
        let (limit, clock) = limit(2);
        let admits = |address: &str| limit.admits(address.parse().unwrap());
        assert!(admits("192.0.2.1") && admits("::ffff:192.0.2.1"));
        assert!(!admits("192.0.2.1"));
        assert!(admits("192.0.2.2"));
        assert!(admits("2001:db8:1:2::1") && admits("2001:db8:1:2::2"));
        assert!(!admits("2001:db8:1:2::3"));
        assert!(admits("2001:db8:1:3::1"));
        clock.advance(Duration::from_millis(500));
        assert!(admits("192.0.2.1"));
        assert!(!admits("192.0.2.1"));
        clock.advance(Duration::from_secs(1));
        assert!(admits("192.0.2.1") && admits("192.0.2.1") && !admits("192.0.2.1"));
    }

    #[test]
    fn addresses_are_forgotten_but_for_those_at_their_limit() {
        let (limit, clock) = limit(1);
        let address = |number: u32| IpAddr::V4(Ipv4Addr::from_bits(number));
        for number in 0..EVICTION_INTERVAL - 2 {
            assert!(limit.admits(address(number)));
        }
        clock.advance(Duration::from_secs(60));
        assert!(limit.admits(address(0)));
        // The addresses of a minute ago are forgotten before this request is counted.
        assert!(!limit.admits(address(0)));
        assert!(limit.addresses.len() <= 2, "{}", limit.addresses.len());
    }

    #[test]
    fn an_app_has_a_rate() {
        let limit = AppLimit::new(NonZeroU32::MIN);
        // Two checks within a second.
        assert!((0..1_000).any(|_| !limit.admits()));
    }
}
