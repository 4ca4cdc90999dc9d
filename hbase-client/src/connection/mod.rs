//! A connection to one service of one server. Calls are sent in order; responses arrive in any order. Start with
//! [`Connection::call`]; `pending` has the calls without a response, `transport` opens the stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::config::Config;
use crate::error::Error;
use crate::names::Server;
use crate::proto::rpc::{ConnectionHeader, UserInformation};
use crate::wire::frame::{self, LENGTH_BYTES, Payload, Response};

mod pending;
pub mod transport;
use pending::Pending;
use transport::Transport;

/// A service of a server. Each has its own connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// The cluster's registry, on masters and region servers.
    Registry,
    /// Reads and writes of rows.
    Rows,
    Master,
    /// Administration of a region server.
    Region,
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Self::Registry => "ClientMetaService",
            Self::Rows => "ClientService",
            Self::Master => "MasterService",
            Self::Region => "AdminService",
        }
    }

    /// Returns whether to name a cell codec. Without one, servers neither send nor accept cell blocks.
    fn has_cells(self) -> bool {
        self == Self::Rows
    }
}

const CODEC: &str = "org.apache.hadoop.hbase.codec.KeyValueCodec";
/// Maximum number of frames queued for writing. The budget limits their bytes.
const FRAMES_MAX: usize = 64;
/// Maximum number of bytes allocated before they are received: a declared length may be wrong.
const BYTES_AHEAD_MAX: usize = 8 << 20;
const READ_BUFFER_BYTES: usize = 64 << 10;
/// The minimum permit of a call, for its header.
const CALL_BYTES_MIN: usize = 64;

/// A request with its deadline.
#[derive(Debug)]
pub struct Call<'a, M> {
    pub method: &'static str,
    pub param: &'a M,
    pub cells: Bytes,
    pub deadline: Instant,
    /// The priority in the server's queue; `None` for the default.
    pub priority: Option<u32>,
    /// The permit, if it was acquired before the request was built.
    pub permit: Option<SendPermit>,
}

/// A permit for bytes in flight to a server. It is released once the call gets its response, loses its connection, or
/// is abandoned before it was written; not when a caller abandons a written call.
pub type SendPermit = OwnedSemaphorePermit;

impl<'a, M> Call<'a, M> {
    pub fn new(method: &'static str, param: &'a M, deadline: Instant) -> Self {
        Self { method, param, cells: Bytes::new(), deadline, priority: None, permit: None }
    }
}

#[derive(Debug)]
pub struct Connection {
    server: Server,
    pending: Arc<Pending>,
    next_id: AtomicU32,
    frames: mpsc::Sender<(u32, Bytes)>,
    /// Bytes that may still be sent.
    budget: Arc<Semaphore>,
    budget_bytes: usize,
    /// A server without any response for this long is considered hung.
    stall_timeout: Duration,
    /// The tasks that read and write; they end with the connection.
    _tasks: JoinSet<()>,
}

impl Connection {
    pub async fn open(
        config: &Config,
        transport: &dyn Transport,
        server: &Server,
        service: Service,
    ) -> Result<Self, Error> {
        let unreachable = |reason: String| Error::Unreachable { server: server.clone(), reason };
        let opened = timeout(config.connect_timeout, transport.open(server)).await;
        let stream = match opened {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(unreachable(error.to_string())),
            Err(_) => {
                return Err(unreachable(format!(
                    "not connected within {:?}",
                    config.connect_timeout
                )));
            }
        };
        let has_cells = service.has_cells();
        let header = ConnectionHeader {
            user_info: Some(UserInformation { effective_user: config.user.clone() }),
            service_name: Some(service.name().to_owned()),
            cell_block_codec_class: has_cells.then(|| CODEC.to_owned()),
        };
        let pending = Arc::new(Pending::new(server.clone(), service.name()));
        let (frames, queue) = mpsc::channel(FRAMES_MAX);
        let mut tasks = JoinSet::new();
        tasks.spawn(write(stream.write, frame::greeting(&header), queue, pending.clone()));
        tasks.spawn(read(stream.read, pending.clone()));
        let budget_bytes = config.in_flight_bytes_max.clamp(1, Semaphore::MAX_PERMITS >> 1);
        Ok(Self {
            server: server.clone(),
            pending,
            next_id: AtomicU32::new(0),
            frames,
            budget: Arc::new(Semaphore::new(budget_bytes)),
            budget_bytes,
            stall_timeout: config.call_timeout / 2,
            _tasks: tasks,
        })
    }

    pub fn is_closed(&self) -> bool {
        self.pending.is_closed()
    }

    /// Closes the connection, and fails all its calls with this error.
    pub fn close(&self, error: Error) {
        self.pending.close(error);
    }

    /// Sends a request and returns the response with its cells.
    ///
    /// # Errors
    /// Fails with the server's exception, at the end of the connection, or at the deadline.
    pub async fn call<M: Message, R: Message + Default>(
        &self,
        call: Call<'_, M>,
    ) -> Result<(R, Bytes), Error> {
        let (started, deadline, method) = (Instant::now(), call.deadline, call.method);
        let responses_before = self.pending.responses();
        let timed_out =
            || Error::Deadline { operation: method, limit: deadline - started, last: None };
        let outcome = timeout_at(deadline, self.exchange(call)).await;
        let Ok(outcome) = outcome else {
            if self.pending.responses() == responses_before
                && started.elapsed() >= self.stall_timeout
            {
                // The server seems hung on this connection: the next calls open another one.
                self.close(timed_out());
            }
            return Err(timed_out());
        };
        let payload = outcome?;
        let invalid = |source| Error::Protocol { server: self.server.clone(), source };
        let response = payload.decode().map_err(invalid)?;
        Ok((response, payload.cells))
    }

    /// Waits until this number of bytes may be sent.
    ///
    /// # Errors
    /// Fails if abandoned calls, which the server may have dropped without a response, hold most of the budget. Only a
    /// new connection has more budget, so this one is closed for all callers.
    pub async fn acquire(&self, bytes: usize) -> Result<SendPermit, Error> {
        let bytes = bytes.max(CALL_BYTES_MIN).min(self.budget_bytes);
        let permit = self.budget.clone().acquire_many_owned(bytes as u32);
        tokio::pin!(permit);
        loop {
            // Shorter than the timeout of the waiting call.
            if let Ok(permit) = timeout(self.stall_timeout, &mut permit).await {
                return permit.map_err(|_| Error::Closed);
            }
            let available = self.budget_bytes.saturating_sub(self.pending.abandoned_bytes());
            if available < bytes.max(self.budget_bytes / 2) {
                let (server, reason) = (self.server.clone(), "does not respond to calls");
                let reason = reason.to_owned();
                self.close(Error::Connection { server: server.clone(), reason: reason.clone() });
                return Err(Error::Unreachable { server, reason });
            }
        }
    }

    async fn exchange<M: Message>(&self, call: Call<'_, M>) -> Result<Payload, Error> {
        let permit = match call.permit {
            Some(permit) => permit,
            None => self.acquire(call.param.encoded_len() + call.cells.len()).await?,
        };
        // Reserved first, because no await may separate registering the call from queueing its frame: a call that is
        // cancelled must have done both or neither.
        let queue_slot = self.frames.reserve().await;
        let call_id = self.next_id.fetch_add(1, Ordering::Relaxed) & (i32::MAX as u32);
        let remaining = call.deadline.saturating_duration_since(Instant::now());
        let request = frame::Request {
            call_id,
            method: call.method,
            timeout_ms: u32::try_from(remaining.as_millis()).unwrap_or(u32::MAX).max(1),
            priority: call.priority,
            param: call.param,
            cells: &call.cells,
        };
        let response = self.pending.register(call_id, call.method, permit)?;
        // Without a slot, the connection has ended, and `response` is its error.
        if let Ok(queue_slot) = queue_slot {
            queue_slot.send((call_id, request.encode()));
        }
        response.await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.pending.close(Error::Closed);
    }
}

/// Writes the greeting and then all frames, until the connection ends.
async fn write(
    mut writer: Box<dyn AsyncWrite + Send + Unpin>,
    greeting: Bytes,
    mut queue: mpsc::Receiver<(u32, Bytes)>,
    pending: Arc<Pending>,
) {
    let mut frame = Some(greeting);
    while let Some(bytes) = frame {
        let written = async {
            writer.write_all(&bytes).await?;
            writer.flush().await
        };
        if let Err(error) = written.await {
            return pending.disconnect(&error.to_string());
        }
        drop(bytes);
        frame = next_frame(&mut queue, &pending).await;
    }
}

/// Returns the next frame whose call was not abandoned.
async fn next_frame(queue: &mut mpsc::Receiver<(u32, Bytes)>, pending: &Pending) -> Option<Bytes> {
    loop {
        let (call_id, bytes) = queue.recv().await?;
        if pending.is_awaited(call_id) {
            return Some(bytes);
        }
    }
}

/// Reads responses and passes them to their callers, until the connection ends.
async fn read(reader: Box<dyn AsyncRead + Send + Unpin>, pending: Arc<Pending>) {
    let mut reader = BufReader::with_capacity(READ_BUFFER_BYTES, reader);
    loop {
        let mut length = [0; LENGTH_BYTES];
        if let Err(error) = reader.read_exact(&mut length).await {
            return pending.disconnect(&describe(&error));
        }
        let length = match frame::response_length(length) {
            Ok(length) => length,
            Err(error) => return pending.protocol_error(error),
        };
        let mut bytes = BytesMut::with_capacity(length.min(BYTES_AHEAD_MAX));
        if let Err(error) = fill(&mut reader, &mut bytes, length).await {
            return pending.disconnect(&describe(&error));
        }
        match Response::decode(bytes.freeze()) {
            Ok(response) => pending.complete(response),
            Err(error) => return pending.protocol_error(error),
        }
    }
}

/// Reads until the buffer has this length.
async fn fill(
    reader: &mut (impl AsyncRead + Unpin),
    bytes: &mut BytesMut,
    length: usize,
) -> std::io::Result<()> {
    while bytes.len() < length {
        let missing = length - bytes.len();
        let read = reader.read_buf(&mut bytes::BufMut::limit(&mut *bytes, missing)).await?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

fn describe(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "closed the connection".to_owned(),
        _ => error.to_string(),
    }
}
