//! Downloads: completeness, what they keep of expired touches, and clients and stores that fail midway.

mod clients;
mod complete_until;
mod expired_touches;
mod resume;
mod truncated;
