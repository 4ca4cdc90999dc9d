//! A server in memory that speaks as HBase does, and says whatever a test wants: other answers, late
//! ones, half of one, none. With tokio's clock paused nothing of it takes any time.

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

mod model;
mod scanning;
pub use model::{FakeRegion, Model, TABLE, pair};

/// What came, from whom it does not matter.
#[derive(Debug, Clone)]
pub struct Heard {
    pub server: String,
    pub service: String,
    pub method: String,
    /// Connections are counted, over all servers.
    pub connection: usize,
    pub timeout_ms: u32,
    pub param: Bytes,
    pub cells: Bytes,
}

/// What is done about it.
#[derive(Debug, Clone)]
pub enum Reply {
    Answer {
        message: Vec<u8>,
        cells: Bytes,
    },
    Exception {
        class: String,
        text: String,
        do_not_retry: bool,
        place: Option<(String, i32)>,
    },
    After(Duration, Box<Reply>),
    /// Only the first bytes of it, then the end of the connection.
    Cut(usize, Box<Reply>),
    Raw(Vec<u8>),
    Never,
    Close,
}

impl Reply {
    pub fn answer(message: &impl Message) -> Self {
        Self::Answer { message: message.encode_to_vec(), cells: Bytes::new() }
    }

    pub fn exception(class: &str) -> Self {
        let (class, text) =
            (class.to_owned(), format!("{class}: as the test wants\n\tat some.place"));
        // As HBase has it.
        let do_not_retry =
            ["Scanner", "NoSuch", "DoNotRetry"].iter().any(|part| class.contains(part));
        Self::Exception { class, text, do_not_retry, place: None }
    }
}

type Script = Box<dyn FnMut(&Heard, &mut Model) -> Option<Reply> + Send>;

/// What a test scripts, before what the model says.
pub struct Fake {
    pub model: Model,
    script: Option<Script>,
    connections: usize,
    /// All that was heard, in order.
    pub heard: Vec<Heard>,
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
    /// Servers `s1` to `s3`, of which `s1` is master too, and three regions of [`TABLE`]: up to `h`,
    /// up to `p`, and the rest, one on each.
    pub fn new() -> Self {
        let (model, script) = (Model::new(), None);
        Self(Arc::new(Mutex::new(Fake { model, script, connections: 0, heard: Vec::new() })))
    }

    /// Asked before the model: whether it says something else, or changes the model before.
    pub fn script(&self, script: impl FnMut(&Heard, &mut Model) -> Option<Reply> + Send + 'static) {
        self.with(|fake| fake.script = Some(Box::new(script)));
    }

    pub fn with<T>(&self, change: impl FnOnce(&mut Fake) -> T) -> T {
        change(&mut self.0.lock().expect("no test panics here"))
    }

    pub fn model<T>(&self, change: impl FnOnce(&mut Model) -> T) -> T {
        self.with(|fake| change(&mut fake.model))
    }

    /// How often a method was called for rows of the table, or `hbase:meta`.
    pub fn count(&self, holds: impl Fn(&Heard) -> bool) -> usize {
        self.with(|fake| fake.heard.iter().filter(|heard| holds(heard)).count())
    }

    pub fn config() -> Config {
        let mut config = Config::new(["s1:1", "s2:1"]).expect("addresses");
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
        let client = self.connect(config).await.expect("the servers answer");
        client.table(TABLE).expect("a name")
    }

    fn reply(&self, heard: Heard) -> Reply {
        self.with(|fake| {
            fake.heard.push(heard.clone());
            let scripted = fake.script.as_mut().and_then(|script| script(&heard, &mut fake.model));
            scripted.unwrap_or_else(|| fake.model.reply(&heard))
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
    let header = ConnectionHeader::decode(frame(read).await?).expect("a header");
    let service = header.service_name.expect("a service");
    if servers.model(|model| model.unknown.contains(&*service)) {
        return Ok(());
    }
    loop {
        let mut bytes = frame(read).await?;
        if servers.model(|model| model.down.contains(&server)) {
            return Ok(());
        }
        let header = RequestHeader::decode(delimited(&mut bytes)).expect("a header");
        let param = delimited(&mut bytes);
        let announced = header.cell_block_meta.and_then(|meta| meta.length).unwrap_or(0);
        assert_eq!(announced as usize, bytes.len(), "the cells are as long as is said");
        let heard = Heard {
            server: server.clone(),
            service: service.clone(),
            method: header.method_name.expect("a method"),
            connection,
            timeout_ms: header.timeout.expect("a time"),
            param,
            cells: bytes,
        };
        let (reply, call_id) = (servers.reply(heard), header.call_id.expect("a number"));
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
    let length = prost::decode_length_delimiter(&mut *bytes).expect("a length");
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
        Reply::Cut(length, reply) => {
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
        Reply::Answer { message, cells } => {
            let length = Some(cells.len() as u32);
            header.cell_block_meta = (!cells.is_empty()).then_some(CellBlockMeta { length });
            out.put_slice(&header.encode_length_delimited_to_vec());
            prost::encode_length_delimiter(message.len(), &mut out).expect("room");
            out.put_slice(&message);
            out.put_slice(&cells);
        }
        Reply::Exception { class, text, do_not_retry, place } => {
            let (hostname, port) = place.unzip();
            header.exception = Some(ExceptionResponse {
                exception_class_name: Some(class),
                stack_trace: Some(text),
                hostname,
                port,
                do_not_retry: Some(do_not_retry),
            });
            out.put_slice(&header.encode_length_delimited_to_vec());
        }
        other => panic!("no answer: {other:?}"),
    }
    let mut framed = (out.len() as u32).to_be_bytes().to_vec();
    framed.extend_from_slice(&out);
    framed
}
