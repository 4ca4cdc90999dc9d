//! One connection to one service of one server: calls go out in order, answers come back in any.

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
use crate::transport::Transport;
use crate::wire::frame::{self, Answer, LENGTH_BYTES, Payload};

mod pending;
use pending::Pending;

/// What a connection is for; each has connections of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// The cluster's registry, on masters and region servers.
    Registry,
    /// Reading and writing rows.
    Rows,
    Master,
    /// A region server's own affairs.
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

    /// Cells come in blocks only where a codec is named; and a block sent without one is an error.
    fn has_cells(self) -> bool {
        self == Self::Rows
    }
}

const CODEC: &str = "org.apache.hadoop.hbase.codec.KeyValueCodec";
/// Frames that wait to be written: their bytes are bounded by the budget.
const FRAMES_MAX: usize = 64;
/// Reserved before they have come: what is announced may never come.
const BYTES_AHEAD_MAX: usize = 8 << 20;
const READ_BUFFER_BYTES: usize = 64 << 10;
/// What a call takes at the least, with its header.
const CALL_BYTES_MIN: usize = 64;

/// What is asked, and for how long.
#[derive(Debug)]
pub struct Call<'a, M> {
    pub method: &'static str,
    pub param: &'a M,
    pub cells: Bytes,
    pub deadline: Instant,
    /// Of what the server does first; nothing for what is of no importance above others.
    pub priority: Option<u32>,
    /// Room that was taken before the call was put together.
    pub room: Option<SendPermit>,
}

/// Bytes that may be on their way to a server, until it is dropped: once the call has an answer, was not
/// written in time, or has lost its connection, whether or not anybody still waits for it.
pub type SendPermit = OwnedSemaphorePermit;

impl<'a, M> Call<'a, M> {
    pub fn new(method: &'static str, param: &'a M, deadline: Instant) -> Self {
        Self { method, param, cells: Bytes::new(), deadline, priority: None, room: None }
    }
}

#[derive(Debug)]
pub struct Connection {
    server: Server,
    pending: Arc<Pending>,
    next_id: AtomicU32,
    frames: mpsc::Sender<(u32, Bytes)>,
    /// Bytes that may be on their way.
    budget: Arc<Semaphore>,
    budget_bytes: usize,
    /// Without any answer for so long, the server hangs.
    patience: Duration,
    /// Reading and writing; they end with the connection.
    _tasks: JoinSet<()>,
}

impl Connection {
    pub async fn open(
        config: &Config,
        transport: &dyn Transport,
        server: &Server,
        service: Service,
    ) -> Result<Self, Error> {
        let failed = |reason: String| Error::Unreachable { server: server.clone(), reason };
        let opened = timeout(config.connect_timeout, transport.open(server)).await;
        let stream = match opened {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(failed(error.to_string())),
            Err(_) => {
                return Err(failed(format!("no connection within {:?}", config.connect_timeout)));
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
            patience: config.call_timeout / 2,
            _tasks: tasks,
        })
    }

    pub fn is_closed(&self) -> bool {
        self.pending.is_closed()
    }

    /// Ends it, and all that waits on it.
    pub fn close(&self, error: Error) {
        self.pending.close(error);
    }

    /// # Errors
    /// What the server says, the end of the connection, or the deadline's passing.
    pub async fn call<M: Message, R: Message + Default>(
        &self,
        call: Call<'_, M>,
    ) -> Result<(R, Bytes), Error> {
        let (begun, deadline, method) = (Instant::now(), call.deadline, call.method);
        let heard_before = self.pending.heard();
        let late = || Error::Deadline { what: method, limit: deadline - begun, last: None };
        let outcome = timeout_at(deadline, self.exchange(call)).await;
        let Ok(outcome) = outcome else {
            if self.pending.heard() == heard_before && begun.elapsed() >= self.patience {
                // Whatever comes next had better have another connection.
                self.close(late());
            }
            return Err(late());
        };
        let payload = outcome?;
        let unreadable = |source| Error::Protocol { server: self.server.clone(), source };
        let answer = payload.decode().map_err(unreadable)?;
        Ok((answer, payload.cells))
    }

    /// Waits until so many bytes may be sent.
    ///
    /// # Errors
    /// Where they never may: calls that nobody waits for any more, and that the server may have dropped, have
    /// most of the room. Only another connection has more, so this one is closed, for all.
    pub async fn room(&self, bytes: usize) -> Result<SendPermit, Error> {
        let bytes = bytes.max(CALL_BYTES_MIN).min(self.budget_bytes);
        let room = self.budget.clone().acquire_many_owned(bytes as u32);
        tokio::pin!(room);
        loop {
            // Sooner than a call that waits for it gives up.
            if let Ok(room) = timeout(self.patience, &mut room).await {
                return room.map_err(|_| Error::Closed);
            }
            let left = self.budget_bytes.saturating_sub(self.pending.abandoned_bytes());
            if left < bytes.max(self.budget_bytes / 2) {
                let (server, reason) = (self.server.clone(), "leaves calls without an answer");
                let reason = reason.to_owned();
                self.close(Error::Connection { server: server.clone(), reason: reason.clone() });
                return Err(Error::Unreachable { server, reason });
            }
        }
    }

    async fn exchange<M: Message>(&self, call: Call<'_, M>) -> Result<Payload, Error> {
        let room = match call.room {
            Some(room) => room,
            None => self.room(call.param.encoded_len() + call.cells.len()).await?,
        };
        // Nothing waits between what is expected and what is handed over: one is not without the other.
        let place = self.frames.reserve().await;
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
        let answer = self.pending.expect(call_id, call.method, room)?;
        // There is no place once the connection has ended, which the answer then tells.
        if let Ok(place) = place {
            place.send((call_id, request.encode()));
        }
        answer.await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.pending.close(Error::Closed);
    }
}

/// Writes the greeting and then frame after frame, until there is no connection.
async fn write(
    mut to: Box<dyn AsyncWrite + Send + Unpin>,
    greeting: Bytes,
    mut queue: mpsc::Receiver<(u32, Bytes)>,
    pending: Arc<Pending>,
) {
    let mut frame = Some(greeting);
    while let Some(bytes) = frame {
        let written = async {
            to.write_all(&bytes).await?;
            to.flush().await
        };
        if let Err(error) = written.await {
            return pending.break_off(&error.to_string());
        }
        drop(bytes);
        frame = next(&mut queue, &pending).await;
    }
}

/// The next one that somebody waits for.
async fn next(queue: &mut mpsc::Receiver<(u32, Bytes)>, pending: &Pending) -> Option<Bytes> {
    loop {
        let (call_id, bytes) = queue.recv().await?;
        if pending.is_wanted(call_id) {
            return Some(bytes);
        }
    }
}

/// Hands answers to those who wait for them, until there is no connection.
async fn read(from: Box<dyn AsyncRead + Send + Unpin>, pending: Arc<Pending>) {
    let mut from = BufReader::with_capacity(READ_BUFFER_BYTES, from);
    loop {
        let mut length = [0; LENGTH_BYTES];
        if let Err(error) = from.read_exact(&mut length).await {
            return pending.break_off(&ended(&error));
        }
        let length = match frame::answer_length(length) {
            Ok(length) => length,
            Err(error) => return pending.misspoke(error),
        };
        let mut bytes = BytesMut::with_capacity(length.min(BYTES_AHEAD_MAX));
        if let Err(error) = fill(&mut from, &mut bytes, length).await {
            return pending.break_off(&ended(&error));
        }
        match Answer::decode(bytes.freeze()) {
            Ok(answer) => pending.answered(answer),
            Err(error) => return pending.misspoke(error),
        }
    }
}

async fn fill(
    from: &mut (impl AsyncRead + Unpin),
    bytes: &mut BytesMut,
    length: usize,
) -> std::io::Result<()> {
    while bytes.len() < length {
        let missing = length - bytes.len();
        let read = from.read_buf(&mut bytes::BufMut::limit(&mut *bytes, missing)).await?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

fn ended(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "closed the connection".to_owned(),
        _ => error.to_string(),
    }
}
