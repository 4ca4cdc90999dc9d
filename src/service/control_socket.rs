//! The socket through which `adtrail backup` requests a checkpoint from the running service. It is in the store's
//! directory and accessible only to its owner.
//!
//! Each connection is one request. The service responds with one line: [`CREATED`] once the checkpoint exists, or an
//! error. The checkpoint exists until the client removes it or closes the connection.

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
/// The response after a checkpoint is created.
const CREATED: &str = "created";
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Starts a thread that serves until shutdown. A failure to listen only causes a warning, since everything else works
/// without the socket.
pub fn start(
    store: &Path,
    checkpoints: Checkpoints,
    shutdown: &Shutdown,
) -> anyhow::Result<JoinHandle<()>> {
    // Removes the checkpoint of a service that was killed during a backup, unless that backup still runs.
    if let Err(reason) = checkpoint::clear(store) {
        tracing::info!(%reason, "the checkpoint of an earlier backup is not removed");
    }
    let path = store.join(SOCKET);
    let listener = listen(&path).inspect_err(|error| {
        let path = path.display();
        tracing::warn!(
            %path,
            %error,
            "cannot listen on the control socket: no backup is possible while this process runs"
        );
    });
    let (store, shutdown) = (store.to_owned(), shutdown.clone());
    Builder::new()
        .name("control".into())
        .spawn(move || {
            if let Ok(listener) = listener {
                Control { checkpoints, store, client: None }.serve(&listener, &shutdown);
            }
        })
        .context("the control socket thread cannot be started")
}

/// Binds the socket, replacing one that a killed service has left behind. It is bound in a private directory, so that
/// nobody can connect before it has its permissions.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let private = tempfile::Builder::new().prefix(".c").tempdir_in(path.with_file_name(""))?;
    let bound = private.path().join("s");
    let listener = UnixListener::bind(&bound)?;
    fs::set_permissions(&bound, Permissions::from_mode(0o600))?;
    fs::rename(&bound, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

struct Control {
    checkpoints: Checkpoints,
    store: PathBuf,
    /// The client for which the checkpoint exists.
    client: Option<UnixStream>,
}

impl Control {
    fn serve(mut self, listener: &UnixListener, shutdown: &Shutdown) {
        while !shutdown.is_requested() {
            if self.client.take_if(is_closed).is_some() {
                self.clear();
            }
            match listener.accept() {
                // A failed response means that the client is gone.
                Ok((client, _)) => drop(self.respond(client)),
                Err(_) => shutdown.sleep(POLL_INTERVAL),
            }
        }
        // A client that is still copying continues, and removes the checkpoint when it is done.
        let _ = fs::remove_file(self.store.join(SOCKET));
    }

    fn respond(&mut self, mut client: UnixStream) -> io::Result<()> {
        if self.client.is_some() {
            return writeln!(client, "another backup is being taken; try again after it");
        }
        let started = Instant::now();
        match self.checkpoints.take() {
            Ok(_) => {
                tracing::info!(took = ?started.elapsed(), "checkpoint created for a backup");
                writeln!(client, "{CREATED}").inspect_err(|_| self.clear())?;
                client.set_nonblocking(true)?;
                self.client = Some(client);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "the checkpoint for a backup cannot be created");
                writeln!(client, "{}", error.to_string().replace('\n', " "))
            }
        }
    }

    fn clear(&self) {
        if let Err(error) = checkpoint::clear(&self.store) {
            tracing::warn!(%error, "the checkpoint of a backup cannot be removed, and uses disk space");
        }
    }
}

/// Returns true if the client has closed the connection: since clients send nothing, a read otherwise blocks.
fn is_closed(client: &mut UnixStream) -> bool {
    !matches!(client.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// Requests a checkpoint from the service that has the store open. The checkpoint exists while the returned connection
/// is open. Returns `None` if no service listens.
pub fn request_checkpoint(store: &Path) -> anyhow::Result<Option<UnixStream>> {
    let path = store.join(SOCKET);
    let unreachable = || format!("the running service cannot be reached at {}", path.display());
    let service = match UnixStream::connect(&path) {
        // A killed service leaves a socket that refuses connections. A path that is too long for a socket is invalid
        // input; the service cannot listen on it either.
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
    let mut response = String::new();
    BufReader::new(&service).read_line(&mut response).with_context(unreachable)?;
    match response.trim_end() {
        CREATED => Ok(Some(service)),
        "" => bail!("the service ended before the checkpoint was created; nothing is backed up"),
        error => bail!("{error}"),
    }
}
