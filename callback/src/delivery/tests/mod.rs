//! Tests of delivery against a server, with an outbox in memory and a clock that tests set.

mod lanes;
mod memory;
mod mock;
mod networks;
mod safety;
mod table;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::sender::Sender;
use super::timing::Timing;
use crate::endpoint::Endpoint;
use crate::preset::catalogue::Presets;
use crate::resolver::Lookup;
use memory::TestClock;

/// The present time of tests.
const NOW_MS: i64 = 1_773_160_010_000;

/// A lookup that finds this address for every name.
fn lookup(address: &str) -> Lookup {
    let address: IpAddr = address.parse().unwrap();
    Arc::new(move |_| Box::pin(found(address)))
}

async fn found(address: IpAddr) -> io::Result<Vec<IpAddr>> {
    Ok(vec![address])
}

fn timing() -> Timing {
    Timing { request_timeout: Duration::from_secs(10), ..Timing::default() }
}

/// Returns a sender for the endpoints of these settings, all of one channel.
fn sender_with(settings: &str, timing: Timing, lookup: Lookup) -> (Sender, TestClock) {
    let settings = settings.replace("preset =", "channels = [\"toutiao\"]\npreset =");
    let settings = format!("[[channels]]\nid = \"toutiao\"\n{settings}");
    let settings = config::parse(&settings).unwrap().callbacks;
    let presets = Presets::load(&settings).unwrap();
    let endpoints = Endpoint::all(&settings, &presets).unwrap();
    let clock = TestClock::default();
    clock.set_ms(NOW_MS);
    let reading = clock.clone();
    let clock_of_sender = Arc::new(move || reading.now_ms());
    let sender = Sender::with_lookup(endpoints, &settings, clock_of_sender, timing, lookup);
    (sender.unwrap(), clock)
}

/// Returns a sender for these lines of endpoints, whose requests to `localhost` reach servers of the test.
fn sender(endpoints: &str) -> (Sender, TestClock) {
    let settings = format!("[callbacks]\nallow_loopback = [\"localhost\"]\n{endpoints}\n");
    sender_with(&settings, timing(), lookup("127.0.0.1"))
}
