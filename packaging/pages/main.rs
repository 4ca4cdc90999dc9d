//! Writes man pages and shell completions of all commands, for the packages: `cargo run --example pages -- DIR`.

mod generate;

use std::io;
use std::path::PathBuf;

fn main() -> io::Result<()> {
    let dir = std::env::args_os().nth(1).map(PathBuf::from);
    let usage = || io::Error::new(io::ErrorKind::InvalidInput, "usage: pages DIR");
    generate::write(&dir.ok_or_else(usage)?)
}
