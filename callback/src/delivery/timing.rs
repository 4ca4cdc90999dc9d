//! Times of delivery.

use std::time::Duration;

config::timing! {
    /// Timeouts and intervals of delivery.
    pub struct Timing {
        /// From the lookup of the name to the end of the response.
        pub request_timeout: Duration = Duration::from_secs(15),
        /// From the lookup of the name to the connection.
        pub connect_timeout: Duration = Duration::from_secs(10),
        /// How often to ask the outbox for what is due.
        pub poll_interval: Duration = Duration::from_millis(500),
        /// How long a claimed callback belongs to this process: longer than a request and the wait before it.
        pub lease: Duration = Duration::from_secs(60),
        /// How long an effect waits for its activation.
        pub activation_wait: Duration = Duration::from_secs(1),
        /// The first pause of a host that fails; each further one is twice as long.
        pub pause_min: Duration = Duration::from_secs(10),
        /// The longest pause of a host that fails.
        pub pause_max: Duration = Duration::from_secs(300),
        /// A request that would wait longer for the rate of its host, or for other requests to it, is postponed.
        pub rate_wait_max: Duration = Duration::from_secs(5),
    }
}
