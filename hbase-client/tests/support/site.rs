//! `hbase-site.xml`: what HBase is told.

use std::fmt::Write;

/// Settings by name; the last one of a name holds.
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
                .expect("a string takes all");
        }
        xml + "</configuration>\n"
    }

    /// What every server of a test is told: it is small, on this machine alone, and quick.
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
            // Three servers in one heap: with the defaults they run out of it.
            .set("hbase.regionserver.global.memstore.size", 0.12)
            .set("hfile.block.cache.size", 0.1)
            // More than a client sends in one call by itself.
            .set("hbase.rpc.rows.warning.threshold", 1_000)
            .set("hbase.rpc.rows.size.threshold.reject", true)
            // Scanners have a lease of so long, which is looked at so often.
            .set("hbase.client.scanner.timeout.period", 3_000)
            .set("hbase.server.thread.wakefrequency", 500)
            // Regions stay where a test has them.
            .set("hbase.balancer.period", 86_400_000)
    }
}
