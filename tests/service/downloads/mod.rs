//! Downloads: completeness, and clients and stores that fail midway.

mod clients;
mod complete_until;
mod resume;
mod truncated;
