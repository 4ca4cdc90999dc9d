//! The socket through which commands make requests to the running service. It is in the store's directory and
//! accessible only to its owner.
//!
//! Each connection is one request, in one line: [`BACKUP`] for a checkpoint, or [`RETRY`] and a [`Selection`] of
//! callbacks as JSON. The service responds with one line: [`CREATED`] once the checkpoint exists, [`RETRIED`] and the
//! number of callbacks, or an error. The checkpoint exists until the client removes it or closes the connection.

use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use attribution::outbox::port::Outbox;
use ingest::Shutdown;
use store::embedded::checkpoint::{self, Checkpoints};
use store::outbox::StoredOutbox;
use store::reader::Reader;

use super::callbacks::now;
use super::callbacks::selection::Selection;

const SOCKET: &str = "control.sock";
const BACKUP: &str = "backup";
/// Is followed by a space and the selection.
const RETRY: &str = "retry";
/// The response after a checkpoint is created.
const CREATED: &str = "created";
/// The response after callbacks are pending again; it is followed by a space and their number.
const RETRIED: &str = "retried";
/// The maximum length of a request.
const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// How long the service waits for a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Starts a thread that serves until shutdown. A failure to listen only causes a warning, since everything else works
/// without the socket.
pub fn start(
    store: &Path,
    checkpoints: Checkpoints,
    reader: &Reader,
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
            "cannot listen on the control socket: no backup or retry is possible while this process runs"
        );
    });
    let (store, outbox, shutdown) = (store.to_owned(), reader.outbox(), shutdown.clone());
    Builder::new()
        .name("control".into())
        .spawn(move || {
            if let Ok(listener) = listener {
                Control { checkpoints, outbox, store, client: None }.serve(&listener, &shutdown);
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
    outbox: StoredOutbox,
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
        client.set_read_timeout(Some(REQUEST_TIMEOUT))?;
        let mut request = String::new();
        BufReader::new((&client).take(REQUEST_BYTES_MAX)).read_line(&mut request)?;
        match request.trim_end().split_once(' ') {
            None if request.trim_end() == BACKUP => self.create_checkpoint(client),
            Some((RETRY, selection)) => {
                let response = self.retry(selection);
                writeln!(client, "{}", response.replace('\n', " "))
            }
            _ => {
                writeln!(client, "the service does not know this request: it is of another version")
            }
        }
    }

    /// Makes callbacks pending again. Returns the response.
    fn retry(&mut self, selection: &str) -> String {
        let selection: Selection = match serde_json::from_str(selection) {
            Ok(selection) => selection,
            Err(error) => return format!("the selection of callbacks cannot be read: {error}"),
        };
        let retried = selection.filter().map(|filter| self.outbox.retry(&filter, now()));
        match retried {
            Ok(Ok(count)) => {
                tracing::info!(count, "callbacks are tried again on request");
                format!("{RETRIED} {count}")
            }
            Ok(Err(error)) => error.to_string(),
            Err(problem) => problem,
        }
    }

    fn create_checkpoint(&mut self, mut client: UnixStream) -> io::Result<()> {
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

/// Returns true if the client has closed the connection: since clients send no more, a read otherwise blocks.
fn is_closed(client: &mut UnixStream) -> bool {
    !matches!(client.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// Requests a checkpoint from the service that has the store open. The checkpoint exists while the returned connection
/// is open. Returns `None` if no service listens.
pub fn request_checkpoint(store: &Path) -> anyhow::Result<Option<UnixStream>> {
    let Some((service, response)) = request(store, BACKUP)? else { return Ok(None) };
    match &*response {
        CREATED => Ok(Some(service)),
        "" => bail!("the service ended before the checkpoint was created; nothing is backed up"),
        error => bail!("{error}"),
    }
}

/// Asks the service that has the store open to try callbacks again. Returns their number; `None` if no service listens.
pub fn request_retry(store: &Path, selection: &Selection) -> anyhow::Result<Option<u64>> {
    let selection = serde_json::to_string(selection)?;
    let Some((_, response)) = request(store, &format!("{RETRY} {selection}"))? else {
        return Ok(None);
    };
    match response.split_once(' ') {
        Some((RETRIED, count)) => Ok(Some(count.parse()?)),
        _ if response.is_empty() => bail!("the service ended; some callbacks may be tried again"),
        _ => bail!("{response}"),
    }
}

/// Makes a request to the service that has the store open. Returns the connection and the response, which is empty if
/// the service has ended; `None` if no service listens.
fn request(store: &Path, request: &str) -> anyhow::Result<Option<(UnixStream, String)>> {
    let path = store.join(SOCKET);
    let unreachable = || format!("the running service cannot be reached at {}", path.display());
    let mut service = match UnixStream::connect(&path) {
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
    writeln!(service, "{request}").with_context(unreachable)?;
    BufReader::new(&service).read_line(&mut response).with_context(unreachable)?;
    Ok(Some((service, response.trim_end().to_owned())))
}
