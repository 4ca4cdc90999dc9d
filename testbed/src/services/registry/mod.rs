//! A real schema registry with Confluent's API: Apicurio, in one JVM, downloaded with Maven.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::child_guard::ChildGuard;
use super::class_data::Archive;
use super::maven;
use super::shared::{Service, note_start};
use crate::{eventually, free_port, http};

mod guids;

const POM: &str = include_str!("pom.xml");
const JAR: &str = "apicurio-registry-app-2.6.13.Final-runner.jar";

/// The path of Confluent's API in Apicurio.
const API: &str = "/apis/ccompat/v7";

#[derive(Debug)]
pub struct Registry {
    dir: PathBuf,
    port: u16,
    /// The port of the proxy that adds GUIDs.
    guids_port: u16,
    running: Option<ChildGuard>,
}

/// A registered schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    pub id: u32,
    /// Assigned by the proxy.
    pub guid: [u8; 16],
}

impl Registry {
    /// The registry shared by all tests. Each test registers its own subjects.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Registry> = OnceLock::new();
        SHARED.get_or_init(|| match Service::find("registry") {
            Some(service) => Self {
                dir: service.text("dir").into(),
                port: service.port("port"),
                guids_port: service.port("guids_port"),
                running: None,
            },
            None => Self::start(),
        })
    }

    /// The values that other processes need to use this registry.
    pub fn service(&self) -> Service {
        let service = Service::default().with("dir", self.dir.display()).with("port", self.port);
        service.with("guids_port", self.guids_port)
    }

    /// Starts a new, empty registry, which may be stopped and restarted.
    pub fn start() -> Self {
        // Another process may take a port between `free_port` and its use: retry once.
        Self::try_start()
            .or_else(|_| Self::try_start())
            .unwrap_or_else(|log| panic!("the registry does not start:\n{log}"))
    }

    fn try_start() -> Result<Self, String> {
        let dir = TempDir::with_prefix("adtrail-registry-").expect("the directory is created");
        let port = free_port();
        let guids_port = guids::start_proxy(format!("127.0.0.1:{port}"));
        // Kept, because the child guard removes it, which also works for a registry in a `static`.
        let mut registry = Self { dir: dir.keep(), port, guids_port, running: None };
        registry.launch()?;
        Ok(registry)
    }

    /// Starts the registry and waits until it responds. Returns the log if a port is taken.
    fn launch(&mut self) -> Result<(), String> {
        let archive = Archive::new(&program(), "registry");
        let mut command = Command::new("java");
        command
            .arg(archive.option())
            // Optimized for a fast start and a small size, not for a long run.
            .args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
            .arg("-Dquarkus.http.host=127.0.0.1")
            .arg(format!("-Dquarkus.http.port={}", self.port))
            // On disk, so that registered schemas survive a restart.
            .arg(format!("-Dquarkus.datasource.jdbc.url=jdbc:h2:file:{}/db", self.dir.display()))
            .arg("-jar")
            .arg(program().join(JAR));
        let started = Instant::now();
        let running = ChildGuard::spawn(&self.dir, &command);
        let pid = running.pid();
        self.running = Some(running);
        let outcome = eventually("the registry responds", || {
            let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            if log.contains("seems to be in use by another process") {
                return Ok(Err(log));
            }
            match http::get(&self.address(), &format!("{API}/subjects")) {
                Ok(reply) if reply.status == 200 => Ok(Ok(())),
                Ok(reply) => Err(format!("status {}:\n{log}", reply.status)),
                Err(error) => Err(format!("{error}:\n{log}")),
            }
        });
        note_start("registry", started);
        archive.make(pid);
        outcome
    }

    pub fn stop(&mut self) {
        self.running.take().expect("the registry runs").end("TERM");
    }

    /// Restarts the registry on the same ports and directory after [`Registry::stop`].
    pub fn restart(&mut self) {
        assert!(self.running.is_none(), "the registry is still running");
        self.launch().unwrap_or_else(|log| panic!("the registry does not restart:\n{log}"));
    }

    /// The value of the setting `registry.urls`, with GUIDs.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}{API}", self.guids_port)
    }

    /// Registers an Avro schema. `references` are pairs of a type name and the subject whose first version defines
    /// it.
    pub fn register(
        &self,
        subject: &str,
        schema: &Value,
        references: &[(&str, &str)],
    ) -> Registered {
        let references: Vec<Value> = references
            .iter()
            .map(|(name, subject)| json!({"name": name, "subject": subject, "version": 1}))
            .collect();
        self.register_as("AVRO", subject, &schema.to_string(), &references)
    }

    pub fn register_as(
        &self,
        kind: &str,
        subject: &str,
        schema: &str,
        references: &[Value],
    ) -> Registered {
        let body = json!({"schema": schema, "schemaType": kind, "references": references});
        let reply = http::send(
            "POST",
            &format!("127.0.0.1:{}", self.guids_port),
            &format!("{API}/subjects/{subject}/versions"),
            &[("Content-Type", "application/vnd.schemaregistry.v1+json")],
            body.to_string().as_bytes(),
        );
        let reply = reply.expect("the registry responds");
        assert_eq!(reply.status, 200, "{}", reply.text());
        let response: Value = serde_json::from_slice(&reply.body).expect("valid JSON");
        let id = response["id"]
            .as_u64()
            .and_then(|id| u32::try_from(id).ok())
            .expect("the id is present");
        let guid = response["guid"].as_str().and_then(guids::parse).expect("the GUID is valid");
        Registered { id, guid }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        drop(self.running.take());
        // The child guard has removed it, unless the registry was not running.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| maven::resolve("registry", POM, &["dependency:unpack"])).clone()
}
