//! `hbase-site.xml`, the settings of HBase.

use std::fmt::Write;

/// Settings by name; later ones override earlier ones.
#[derive(Debug, Clone, Default)]
pub struct Site(Vec<(String, String)>);

impl Site {
    pub fn set(mut self, name: &str, value: impl ToString) -> Self {
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.to_owned(), value.to_string()));
        self
    }

    pub fn xml(&self) -> String {
        let mut xml = "<configuration>\n".to_owned();
        for (name, value) in &self.0 {
            writeln!(xml, "<property><name>{name}</name><value>{value}</value></property>")
                .expect("writing to a string cannot fail");
        }
        xml + "</configuration>\n"
    }

    /// Returns the settings of every server in tests: small, fast, and bound to this machine.
    pub fn of_test() -> Self {
        Self::default()
            .set("hbase.unsafe.stream.capability.enforce", false)
            .set("hbase.master.info.port", -1)
            .set("hbase.regionserver.info.port", -1)
            .set("hbase.master.hostname", "localhost")
            .set("hbase.unsafe.regionserver.hostname", "localhost")
            .set("hbase.master.ipc.address", "127.0.0.1")
            .set("hbase.regionserver.ipc.address", "127.0.0.1")
            .set("hbase.regionserver.msginterval", 500)
            .set("hbase.master.wait.on.regionservers.mintostart", 3)
            .set("hbase.master.wait.on.regionservers.maxtostart", 3)
            .set("hbase.master.wait.on.regionservers.interval", 100)
            // Three servers share one heap, which is too small for the defaults.
            .set("hbase.regionserver.global.memstore.size", 0.12)
            .set("hfile.block.cache.size", 0.1)
            // At least the default limit of the client.
            .set("hbase.rpc.rows.warning.threshold", 1_000)
            .set("hbase.rpc.rows.size.threshold.reject", true)
            // The lease of scanners, and the interval of its check.
            .set("hbase.client.scanner.timeout.period", 3_000)
            .set("hbase.server.thread.wakefrequency", 500)
            // Only tests move regions.
            .set("hbase.balancer.period", 86_400_000)
    }
}
