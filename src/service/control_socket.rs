//! How a command asks the running service for something: a socket in the store's directory, so
//! that who may write the store may ask, and nobody else.
//!
//! There is one request so far. A line `checkpoint` is answered by a line `made` once the store's
//! checkpoint is there, or by `error` and why not. It stays until the connection is closed, or
//! until whoever asked has removed it. The service itself writes nowhere else.

use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use ingest::Shutdown;
use store::embedded::checkpoint::{self, Checkpoints};

const SOCKET: &str = "control.sock";
const REQUEST: &str = "checkpoint";
const MADE: &str = "made";
const ERROR: &str = "error ";
/// Bytes of a request or an answer.
const LINE_BYTES_MAX: u64 = 4096;
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Bytes of a socket's address, without the zero at its end.
const ADDRESS_BYTES_MAX: usize = 107;

/// The service's side, on a thread of its own until the wish to stop. Without it the service still
/// does all else, so what keeps it from starting is a warning.
pub fn start(
    store: &Path,
    checkpoints: Checkpoints,
    request_timeout: Duration,
    shutdown: &Shutdown,
) -> anyhow::Result<JoinHandle<()>> {
    // What a service left that was killed while a backup was made. That of a backup that goes on
    // stays.
    if let Err(reason) = checkpoint::clear(store) {
        tracing::info!(%reason, "the checkpoint of an earlier backup stays");
    }
    let (store, shutdown) = (store.to_owned(), shutdown.clone());
    let listener = bind(&store)
        .inspect_err(|error| {
            let path = store.join(SOCKET);
            tracing::warn!(path = %path.display(), %error, "no backups are possible while this runs");
        })
        .ok();
    Builder::new()
        .name("control".into())
        .spawn(move || {
            if let Some(listener) = listener {
                Control { listener, checkpoints, request_timeout, store, user: None }
                    .serve(&shutdown);
            }
        })
        .context("no thread for requests of commands")
}

struct Control {
    listener: UnixListener,
    checkpoints: Checkpoints,
    request_timeout: Duration,
    store: PathBuf,
    /// Of the checkpoint.
    user: Option<UnixStream>,
}

impl Control {
    fn serve(mut self, shutdown: &Shutdown) {
        while !shutdown.is_requested() {
            if self.user.take_if(has_gone).is_some() {
                self.clear();
            }
            match self.listener.accept() {
                // Who does not stay for the answer needs none.
                Ok((asking, _)) => drop(self.answer(asking)),
                Err(_) => shutdown.sleep(LOOK_EVERY),
            }
        }
        // A user that is left goes on, and removes the checkpoint itself.
        let _ = fs::remove_file(self.store.join(SOCKET));
    }

    fn answer(&mut self, mut asking: UnixStream) -> io::Result<()> {
        asking.set_nonblocking(false)?;
        asking.set_read_timeout(Some(self.request_timeout))?;
        asking.set_write_timeout(Some(self.request_timeout))?;
        match read_line(&asking)?.as_deref() {
            Some(REQUEST) => {}
            Some(_) => return writeln!(asking, "{ERROR}this version knows no such request"),
            None => return Ok(()),
        }
        if self.user.is_some() {
            return writeln!(asking, "{ERROR}another backup is being taken; try again after it");
        }
        let started = Instant::now();
        match self.checkpoints.take() {
            Ok(_) => {
                tracing::info!(took = ?started.elapsed(), "a checkpoint is made for a backup");
                writeln!(asking, "{MADE}").inspect_err(|_| self.clear())?;
                asking.set_nonblocking(true)?;
                self.user = Some(asking);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "no checkpoint can be made for a backup");
                writeln!(asking, "{ERROR}{}", error.to_string().replace('\n', " "))
            }
        }
    }

    fn clear(&self) {
        if let Err(error) = checkpoint::clear(&self.store) {
            tracing::warn!(%error, "the checkpoint of a backup stays, and takes space");
        }
    }
}

/// Whether the other side has closed; it has nothing to say.
fn has_gone(user: &mut UnixStream) -> bool {
    !matches!(user.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// Asks the service that runs the store for a checkpoint, which is there as long as what this gives.
/// `None` if no service listens.
pub fn request_checkpoint(store: &Path) -> anyhow::Result<Option<UnixStream>> {
    let path = store.join(SOCKET);
    let connected =
        reachable(store).and_then(|(_folder, near)| UnixStream::connect(near.join(SOCKET)));
    let mut service = match connected {
        Ok(service) => service,
        Err(error) => match error.kind() {
            // The socket of a service that was killed is still there, and refuses.
            ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory => {
                return Ok(None);
            }
            _ => return Err(error).with_context(|| unreachable(&path)),
        },
    };
    writeln!(service, "{REQUEST}").with_context(|| unreachable(&path))?;
    match read_line(&service).with_context(|| unreachable(&path))?.as_deref() {
        Some(MADE) => Ok(Some(service)),
        Some(answer) => bail!("{}", answer.strip_prefix(ERROR).unwrap_or(answer).to_owned()),
        None => Err(anyhow!("the service ended before it had made a checkpoint; nothing is taken")),
    }
}

fn unreachable(path: &Path) -> String {
    format!("the running service can not be asked through {}", path.display())
}

/// A line without its end; `None` if there is no whole one.
fn read_line(stream: &UnixStream) -> io::Result<Option<String>> {
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    Ok(line.strip_suffix('\n').map(str::to_owned))
}

/// Takes the place of a socket that a killed service left.
fn bind(store: &Path) -> io::Result<UnixListener> {
    // Nobody else may connect before the socket has its permissions.
    let closed = tempfile::Builder::new().prefix("control-").tempdir_in(store)?;
    let (_folder, near) = reachable(closed.path())?;
    let listener = UnixListener::bind(near.join(SOCKET))?;
    listener.set_nonblocking(true)?;
    let new = closed.path().join(SOCKET);
    fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    fs::rename(new, store.join(SOCKET))?;
    Ok(listener)
}

/// A folder by a path that is short enough for the address of a socket in it, while the handle lives.
fn reachable(folder: &Path) -> io::Result<(File, PathBuf)> {
    let handle = File::open(folder)?;
    let is_short = folder.join(SOCKET).as_os_str().len() <= ADDRESS_BYTES_MAX;
    let near = if is_short {
        folder.to_owned()
    } else {
        format!("/proc/self/fd/{}", handle.as_raw_fd()).into()
    };
    Ok((handle, near))
}
