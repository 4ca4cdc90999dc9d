//! A child process that cannot outlive the test run and leaves no files behind.
//!
//! A `static` is never dropped, and the test run itself may be killed. Therefore a shell guards the process. It waits for a
//! line of input; if the pipe is closed instead, for any reason, it kills the process and removes its directory.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `$1` is the directory to remove, the rest is the command. A line of input names the signal that ends the
/// process, and keeps the directory.
const SCRIPT: &str = r#"
dir=$1; shift
"$@" >>"$dir/log" 2>&1 & child=$!
echo "$child"
read -r signal
kill -"${signal:-KILL}" "$child"
wait "$child"
[ -n "$signal" ] || rm -rf "$dir"
"#;

#[derive(Debug)]
pub struct ChildGuard {
    shell: Child,
    pid: u32,
}

impl ChildGuard {
    /// Starts the command. Its output is appended to `log` in the directory.
    pub fn spawn(dir: &Path, command: &Command) -> Self {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(dir)
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // A separate process group: Ctrl-C ends only the test run, after which the shell cleans up.
            .process_group(0)
            .spawn()
            .expect("the shell starts");
        let mut line = String::new();
        let stdout = shell.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut line).expect("the shell prints the process id");
        let pid = line.trim().parse().expect("the process id is a number");
        Self { shell, pid }
    }

    /// The id of the guarded process, not of the shell.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Ends the process with a signal (`"KILL"`, `"TERM"`), waits, and keeps its directory.
    pub fn end(mut self, signal: &str) {
        let mut stdin = self.shell.stdin.take().expect("stdin is piped");
        writeln!(stdin, "{signal}").expect("the shell reads its input");
        self.shell.wait().expect("the shell can be waited for");
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // An error means that the shell was already waited for.
        let _ = self.shell.wait();
    }
}
