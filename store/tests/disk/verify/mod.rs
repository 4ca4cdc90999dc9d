//! Planted damages: each is found and named, and what is derived is made right again.

mod altered;
mod bed;
mod files;
mod kept;
mod rekeyed;
mod tables;
mod whole;
use crate::support;
