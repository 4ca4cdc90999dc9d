//! Man pages and shell completions, from the command line that clap parses.

use std::fs;
use std::io;
use std::path::Path;

use adtrail::cli::Cli;
use clap::CommandFactory;
use clap_complete::Shell;

/// Writes `man/adtrail-COMMAND.1` for each command, and `completions/` for each shell. Creates the folders.
pub fn write(dir: &Path) -> io::Result<()> {
    let [man, completions] = ["man", "completions"].map(|name| dir.join(name));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(Cli::command(), &man)?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut Cli::command(), "adtrail", &completions)?;
    }
    Ok(())
}
