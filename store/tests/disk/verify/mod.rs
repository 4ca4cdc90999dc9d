//! Planted damages: each is found and named, and what is derived is made right again.

mod altered;
pub mod bed;
mod files;
mod kept;
mod tables;
mod whole;
use crate::support;
