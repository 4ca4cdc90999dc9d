//! A process that cannot outlive the test run, and leaves nothing behind.
//!
//! What a `static` holds is never dropped, and a test run can itself be killed. So a shell holds
//! the process: it waits for a line from us, and when instead our end of the pipe closes, for
//! whatever reason, it kills the process and removes its folder.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `$1` is the folder to remove, the rest the command. One line of input names the signal to end
/// the process with, and keeps the folder.
const HOLD: &str = r#"
dir=$1; shift
"$@" >>"$dir/log" 2>&1 & child=$!
echo "$child"
read -r signal
kill -"${signal:-KILL}" "$child"
wait "$child"
[ -n "$signal" ] || rm -rf "$dir"
"#;

#[derive(Debug)]
pub struct Leash {
    shell: Child,
    pid: u32,
}

impl Leash {
    /// Starts the program; what it prints is appended to `log` in the folder.
    pub fn hold(dir: &Path, command: &Command) -> Self {
        let mut shell = Command::new("sh")
            .args(["-c", HOLD, "sh"])
            .arg(dir)
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Ctrl-C ends us, and the shell cleans up after us.
            .process_group(0)
            .spawn()
            .expect("a shell starts");
        let mut line = String::new();
        let stdout = shell.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut line).expect("the shell names the process");
        let pid = line.trim().parse().expect("the shell names the process by its number");
        Self { shell, pid }
    }

    /// Of the process held, not of the shell.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Ends the process by a signal (`"KILL"`, `"TERM"`), keeps its folder, and waits.
    pub fn end(mut self, signal: &str) {
        let mut stdin = self.shell.stdin.take().expect("stdin is piped");
        writeln!(stdin, "{signal}").expect("the shell listens");
        self.shell.wait().expect("the shell can be waited for");
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // An error means that it was waited for already.
        let _ = self.shell.wait();
    }
}
