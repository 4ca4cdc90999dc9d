//! A proxy in front of Apicurio that adds the schema GUIDs of Confluent's registry, which Apicurio lacks. It closes a
//! connection without a response while the registry is down.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::{Value, json};

use crate::http;

/// A GUID consists of this prefix and the schema id.
const PREFIX: [u8; 12] = *b"adtrail-test";

/// Starts a proxy for the registry at this address, which runs until the process ends. Returns its port.
pub fn start_proxy(registry: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("the listener is bound").port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let registry = registry.clone();
            // A client that disconnects, or a registry that is down, ends only this connection.
            thread::spawn(move || serve(&registry, &stream));
        }
    });
    port
}

/// Parses a GUID of the proxy.
pub fn parse(guid: &str) -> Option<[u8; 16]> {
    let digits: String = guid.chars().filter(|c| *c != '-').collect();
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

fn guid_of(id: u32) -> String {
    let mut bytes = [0; 16];
    bytes[..12].copy_from_slice(&PREFIX);
    bytes[12..].copy_from_slice(&id.to_be_bytes());
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn id_of(guid: &str) -> Option<u32> {
    let bytes = parse(guid)?;
    let id = bytes.strip_prefix(&PREFIX)?;
    Some(u32::from_be_bytes(id.try_into().ok()?))
}

struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

fn serve(registry: &str, mut stream: &TcpStream) -> io::Result<()> {
    let Request { method, path, headers, body } = read(stream)?;
    let guid = path.split_once("/schemas/guids/").map(|(api, guid)| (api.to_owned(), id_of(guid)));
    let (path, guid_id) = match guid {
        Some((api, Some(id))) => (format!("{api}/schemas/ids/{id}"), Some(id)),
        // A GUID of another origin: the registry does not know this path either.
        _ => (path, None),
    };
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "host" | "connection" | "content-length"))
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let reply = http::send(&method, registry, &path, &headers, &body)?;
    let body = with_guid(&reply.body, guid_id);
    let kind = reply.header("content-type").unwrap_or("application/json");
    let head = format!(
        "HTTP/1.1 {} Proxied\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        reply.status,
        body.len()
    );
    stream.write_all(&[head.as_bytes(), &body].concat())
}

/// Adds the GUID to a response with a schema id, as Confluent's registry does.
fn with_guid(body: &[u8], requested: Option<u32>) -> Vec<u8> {
    let Ok(Value::Object(mut response)) = serde_json::from_slice(body) else {
        return body.to_vec();
    };
    if let (Some(id), true) = (requested, response.contains_key("schema")) {
        response.insert("id".into(), json!(id));
    }
    let id = response.get("id").and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
    if let Some(id) = id {
        response.insert("guid".into(), json!(guid_of(id)));
    }
    Value::Object(response).to_string().into_bytes()
}

fn read(stream: &TcpStream) -> io::Result<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.and_then(|(_, length)| length.parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body)?;
    Ok(Request { method, path, headers, body })
}
