//! In-memory HBase servers whose replies a test can script: other replies, late or truncated ones, or none. With
//! tokio's clock paused, none of it takes real time.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hbase_client::proto::rpc::{
    CellBlockMeta, ConnectionHeader, ExceptionResponse, RequestHeader, ResponseHeader,
};
use hbase_client::transport::{Opening, Stream, Transport};
use hbase_client::{Client, Config, Error, Server, Table};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

mod model;
mod scanning;
pub use model::{FakeRegion, Model, TABLE};

/// The package of HBase's exceptions.
const HBASE: &str = "org.apache.hadoop.hbase";

/// A received call.
#[derive(Debug, Clone)]
pub struct Call {
    pub server: String,
    pub service: String,
    pub method: String,
    /// The ordinal of the connection, over all servers.
    pub connection: usize,
    pub timeout_ms: u32,
    pub param: Bytes,
    pub cells: Bytes,
}

/// The reply to a call.
#[derive(Debug, Clone)]
pub enum Reply {
    Response {
        message: Vec<u8>,
        cells: Bytes,
    },
    Exception {
        class: String,
        text: String,
        do_not_retry: bool,
        moved_to: Option<(String, i32)>,
    },
    After(Duration, Box<Reply>),
    /// The first bytes of a reply, then the end of the connection.
    Truncated(usize, Box<Reply>),
    Raw(Vec<u8>),
    Never,
    Close,
}

impl Reply {
    pub fn response(message: &impl Message) -> Self {
        Self::Response { message: message.encode_to_vec(), cells: Bytes::new() }
    }

    /// Returns an exception of this class, in the package of HBase.
    pub fn exception(class: &str) -> Self {
        let class = format!("{HBASE}.{class}");
        let text = format!("{class}: as the test wants\n\tat some.place");
        // HBase sets the flag for these classes.
        let do_not_retry =
            ["Scanner", "NoSuch", "DoNotRetry"].iter().any(|part| class.contains(part));
        Self::Exception { class, text, do_not_retry, moved_to: None }
    }

    pub fn after(delay: Duration, reply: Self) -> Self {
        Self::After(delay, Box::new(reply))
    }
}

type Script = Box<dyn FnMut(&Call, &mut Model) -> Option<Reply> + Send>;

/// The state of the servers of one test: a model, and a script that takes precedence over it.
pub struct Fake {
    pub model: Model,
    script: Option<Script>,
    connections: usize,
    /// All received calls, in order.
    pub calls: Vec<Call>,
}

/// The servers of one test.
#[derive(Clone)]
pub struct Servers(Arc<Mutex<Fake>>);

impl std::fmt::Debug for Servers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Servers")
    }
}

impl Servers {
    /// Returns servers `s1` to `s3`, of which `s1` is also the master, with one region of [`TABLE`] each: up to `h`,
    /// up to `p`, and the rest.
    pub fn new() -> Self {
        let (model, script) = (Model::new(), None);
        Self(Arc::new(Mutex::new(Fake { model, script, connections: 0, calls: Vec::new() })))
    }

    /// Returns the same servers with rows `a00` to `z99`.
    pub fn filled() -> Self {
        let servers = Self::new();
        servers.model(Model::fill);
        servers
    }

    /// Sets a script that runs before the model replies. It can change the model, or return another reply.
    pub fn script(&self, script: impl FnMut(&Call, &mut Model) -> Option<Reply> + Send + 'static) {
        self.with(|fake| fake.script = Some(Box::new(script)));
    }

    /// Sets a script for the first call that matches.
    pub fn script_first(
        &self,
        matches: impl Fn(&Call) -> bool + Send + 'static,
        reply: impl FnOnce(&Call, &mut Model) -> Reply + Send + 'static,
    ) {
        let mut reply = Some(reply);
        self.script(move |call, model| {
            let is_first = matches(call);
            reply.take_if(|_| is_first).map(|reply| reply(call, model))
        });
    }

    /// Reads or changes the model after a delay.
    pub fn model_after<T: Send + 'static>(
        &self,
        seconds: u64,
        change: impl FnOnce(&mut Model) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let servers = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            servers.model(change)
        })
    }

    pub fn with<T>(&self, change: impl FnOnce(&mut Fake) -> T) -> T {
        change(&mut self.0.lock().expect("the lock is not poisoned"))
    }

    pub fn model<T>(&self, change: impl FnOnce(&mut Model) -> T) -> T {
        self.with(|fake| change(&mut fake.model))
    }

    /// Returns the number of received calls that match.
    pub fn count(&self, matches: impl Fn(&Call) -> bool) -> usize {
        self.with(|fake| fake.calls.iter().filter(|call| matches(call)).count())
    }

    pub fn config() -> Config {
        let mut config = Config::new(["s1:1", "s2:1"]).expect("the addresses are valid");
        config.user = "tester".to_owned();
        config
    }

    pub async fn connect(&self, config: Config) -> Result<Client, Error> {
        Client::connect_over(config, Box::new(self.clone())).await
    }

    pub async fn table(&self) -> Table {
        self.table_of(Self::config()).await
    }

    pub async fn table_of(&self, config: Config) -> Table {
        let client = self.connect(config).await.expect("the servers respond");
        client.table(TABLE).expect("the name is valid")
    }

    fn reply(&self, call: Call) -> Reply {
        self.with(|fake| {
            fake.calls.push(call.clone());
            let scripted = fake.script.as_mut().and_then(|script| script(&call, &mut fake.model));
            scripted.unwrap_or_else(|| fake.model.reply(&call))
        })
    }
}

impl Transport for Servers {
    fn open<'a>(&'a self, server: &'a Server) -> Opening<'a> {
        Box::pin(async move {
            let name = server.to_string();
            let connection = self.with(|fake| {
                fake.connections += 1;
                (!fake.model.down.contains(&name)).then_some(fake.connections)
            });
            let connection = connection.ok_or(io::ErrorKind::ConnectionRefused)?;
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            tokio::spawn(serve(self.clone(), name, connection, theirs));
            let (read, write) = tokio::io::split(ours);
            Ok(Stream { read: Box::new(read), write: Box::new(write) })
        })
    }
}

async fn serve(servers: Servers, server: String, connection: usize, stream: DuplexStream) {
    let (mut read, write) = tokio::io::split(stream);
    let (sender, mut replies) = mpsc::unbounded_channel::<Option<Vec<u8>>>();
    let writing = tokio::spawn(async move {
        let mut write = write;
        while let Some(Some(bytes)) = replies.recv().await {
            if write.write_all(&bytes).await.is_err() {
                break;
            }
        }
        let _ = write.shutdown().await;
    });
    let _ = listen(&servers, server, connection, &mut read, &sender).await;
    let _ = sender.send(None);
    let _ = writing.await;
}

async fn listen(
    servers: &Servers,
    server: String,
    connection: usize,
    read: &mut (impl AsyncReadExt + Unpin),
    replies: &mpsc::UnboundedSender<Option<Vec<u8>>>,
) -> io::Result<()> {
    let mut preamble = [0; 6];
    read.read_exact(&mut preamble).await?;
    assert_eq!(&preamble, b"HBas\0\x50");
    let header =
        ConnectionHeader::decode(frame(read).await?).expect("the connection header is valid");
    let service = header.service_name.expect("the header names a service");
    if servers.model(|model| model.unknown.contains(&*service)) {
        return Ok(());
    }
    loop {
        let mut bytes = frame(read).await?;
        if servers.model(|model| model.down.contains(&server)) {
            return Ok(());
        }
        let header =
            RequestHeader::decode(delimited(&mut bytes)).expect("the request header is valid");
        let param = delimited(&mut bytes);
        let declared = header.cell_block_meta.and_then(|meta| meta.length).unwrap_or(0);
        assert_eq!(declared as usize, bytes.len(), "the length of the cell block");
        let call = Call {
            server: server.clone(),
            service: service.clone(),
            method: header.method_name.expect("the header names a method"),
            connection,
            timeout_ms: header.timeout.expect("the header has a timeout"),
            param,
            cells: bytes,
        };
        let (reply, call_id) =
            (servers.reply(call), header.call_id.expect("the header has a call id"));
        let replies = replies.clone();
        tokio::spawn(async move { send(reply, call_id, &replies).await });
    }
}

async fn frame(read: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Bytes> {
    let mut bytes = vec![0; read.read_u32().await? as usize];
    read.read_exact(&mut bytes).await?;
    Ok(bytes.into())
}

fn delimited(bytes: &mut Bytes) -> Bytes {
    let length = prost::decode_length_delimiter(&mut *bytes).expect("the length is valid");
    bytes.split_to(length)
}

async fn send(reply: Reply, call_id: u32, replies: &mpsc::UnboundedSender<Option<Vec<u8>>>) {
    match reply {
        Reply::After(delay, reply) => {
            tokio::time::sleep(delay).await;
            Box::pin(send(*reply, call_id, replies)).await;
        }
        Reply::Never => {}
        Reply::Close => drop(replies.send(None)),
        Reply::Raw(bytes) => drop(replies.send(Some(bytes))),
        Reply::Truncated(length, reply) => {
            let mut bytes = encoded(*reply, call_id);
            bytes.truncate(length);
            let _ = replies.send(Some(bytes));
            let _ = replies.send(None);
        }
        reply => drop(replies.send(Some(encoded(reply, call_id)))),
    }
}

fn encoded(reply: Reply, call_id: u32) -> Vec<u8> {
    let mut header = ResponseHeader { call_id: Some(call_id), ..ResponseHeader::default() };
    let mut out = BytesMut::new();
    match reply {
        Reply::Response { message, cells } => {
            let length = Some(cells.len() as u32);
            header.cell_block_meta = (!cells.is_empty()).then_some(CellBlockMeta { length });
            out.put_slice(&header.encode_length_delimited_to_vec());
            prost::encode_length_delimiter(message.len(), &mut out).expect("the buffer grows");
            out.put_slice(&message);
            out.put_slice(&cells);
        }
        Reply::Exception { class, text, do_not_retry, moved_to } => {
            let (hostname, port) = moved_to.unzip();
            header.exception = Some(ExceptionResponse {
                exception_class_name: Some(class),
                stack_trace: Some(text),
                hostname,
                port,
                do_not_retry: Some(do_not_retry),
            });
            out.put_slice(&header.encode_length_delimited_to_vec());
        }
        other => panic!("cannot be encoded: {other:?}"),
    }
    let mut framed = (out.len() as u32).to_be_bytes().to_vec();
    framed.extend_from_slice(&out);
    framed
}
