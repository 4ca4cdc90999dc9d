//! Kills, shutdowns, failing disks, lost files and wrong clocks: no event is lost, and none is exported twice.

mod clocks;
mod convergence;
#[cfg(feature = "crash-points")]
mod crash_points;
mod disk_full;
mod io_errors;
mod lost_wal;
mod redelivery;
mod shutdown;
