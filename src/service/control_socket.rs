//! The socket through which `adtrail backup` requests a checkpoint from the running service. It is in the store's
//! directory and accessible to the owner alone.
//!
//! A connection is a request. The service answers with one line, [`MADE`] once the store's checkpoint exists, or the
//! reason for a refusal. The checkpoint stays until the client removes it or closes the connection.

use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ingest::Shutdown;
use store::embedded::checkpoint::{self, Checkpoints};

const SOCKET: &str = "control.sock";
const MADE: &str = "made";
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Serves on a thread of its own until shutdown. Everything else works without the socket, so a failure to listen is
/// a warning.
pub fn start(
    store: &Path,
    checkpoints: Checkpoints,
    shutdown: &Shutdown,
) -> anyhow::Result<JoinHandle<()>> {
    // A service that was killed during a backup leaves its checkpoint. If the backup still runs, it stays.
    if let Err(reason) = checkpoint::clear(store) {
        tracing::info!(%reason, "the checkpoint of an earlier backup stays");
    }
    let path = store.join(SOCKET);
    let listener = listen(&path).inspect_err(|error| {
        let path = path.display();
        tracing::warn!(%path, %error, "no backup is possible while this process runs: no control socket");
    });
    let (store, shutdown) = (store.to_owned(), shutdown.clone());
    Builder::new()
        .name("control".into())
        .spawn(move || {
            if let Ok(listener) = listener {
                Control { checkpoints, store, client: None }.serve(&listener, &shutdown);
            }
        })
        .context("the thread of the control socket cannot be started")
}

/// Replaces the socket of a service that was killed.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

struct Control {
    checkpoints: Checkpoints,
    store: PathBuf,
    /// The client that uses the checkpoint.
    client: Option<UnixStream>,
}

impl Control {
    fn serve(mut self, listener: &UnixListener, shutdown: &Shutdown) {
        while !shutdown.is_requested() {
            if self.client.take_if(is_closed).is_some() {
                self.clear();
            }
            match listener.accept() {
                // A client that has gone needs no answer.
                Ok((client, _)) => drop(self.answer(client)),
                Err(_) => shutdown.sleep(POLL_INTERVAL),
            }
        }
        // A client that still copies goes on, and removes the checkpoint itself.
        let _ = fs::remove_file(self.store.join(SOCKET));
    }

    fn answer(&mut self, mut client: UnixStream) -> io::Result<()> {
        if self.client.is_some() {
            return writeln!(client, "another backup is being taken; try again after it");
        }
        let started = Instant::now();
        match self.checkpoints.take() {
            Ok(_) => {
                tracing::info!(took = ?started.elapsed(), "a checkpoint is made for a backup");
                writeln!(client, "{MADE}").inspect_err(|_| self.clear())?;
                client.set_nonblocking(true)?;
                self.client = Some(client);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "no checkpoint can be made for a backup");
                writeln!(client, "{}", error.to_string().replace('\n', " "))
            }
        }
    }

    fn clear(&self) {
        if let Err(error) = checkpoint::clear(&self.store) {
            tracing::warn!(%error, "the checkpoint of a backup stays, and takes space");
        }
    }
}

/// Clients send nothing, so whatever can be read is the end of the connection.
fn is_closed(client: &mut UnixStream) -> bool {
    !matches!(client.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// Requests a checkpoint from the service that runs the store; it exists while the connection is open. `None` if no
/// service listens.
pub fn request_checkpoint(store: &Path) -> anyhow::Result<Option<UnixStream>> {
    let path = store.join(SOCKET);
    let unreachable = || format!("the running service cannot be reached at {}", path.display());
    let service = match UnixStream::connect(&path) {
        // A killed service leaves a socket that refuses connections. A path that is too long is invalid input, for
        // the service as well.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound
                    | ErrorKind::ConnectionRefused
                    | ErrorKind::NotADirectory
                    | ErrorKind::InvalidInput
            ) =>
        {
            return Ok(None);
        }
        connected => connected.with_context(unreachable)?,
    };
    let mut answer = String::new();
    BufReader::new(&service).read_line(&mut answer).with_context(unreachable)?;
    match answer.trim_end() {
        MADE => Ok(Some(service)),
        "" => bail!("the service ended before it had made a checkpoint; nothing is backed up"),
        refusal => bail!("{refusal}"),
    }
}
