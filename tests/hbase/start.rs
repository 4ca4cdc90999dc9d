//! Processes that start while a real HBase is away.

use std::os::unix::net::UnixDatagram;

use testbed::adtrail::Adtrail;
use testbed::hbase::processes::Processes;
use testbed::site::Site;
use testbed::{DEADLINE, hbase, run_ok, traffic};

use super::{PARTITIONS, WORKLOAD, await_all_read};

const WARNING: &str = "HBase does not respond; waiting for it";
/// How often a process warns.
const WARNING_INTERVAL_S: u64 = 60;

/// Starts a process, and waits until it waits for HBase.
fn start_waiting(site: &Site, role: &str) -> Adtrail {
    // In the place of systemd.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(DEADLINE)).unwrap();
    let adtrail = site.spawn_as(role, &[("NOTIFY_SOCKET", path.to_str().unwrap())]);
    let mut message = [0; 4_096];
    let length = systemd.recv(&mut message).unwrap();
    assert!(message[..length].starts_with(b"STATUS=waiting for HBase: "), "{message:?}");
    adtrail.await_line(&[WARNING, "store.hbase.servers", "localhost:"]);
    adtrail.await_readiness(503, "waiting for HBase");
    assert_eq!(adtrail.reload().status, 422, "it has not started");
    // Waits, too.
    adtrail.signal("HUP");
    adtrail
}

#[test]
fn roles_that_start_before_hbase_wait_for_it() {
    let mut processes = Processes::start();
    let site = hbase::on(&processes.addresses(), "hbase-late", PARTITIONS, traffic::SETTINGS);
    run_ok(&mut site.command(&["hbase", "init"]), b"");
    traffic::produce(&site.topics, WORKLOAD.records());
    processes.kill_master();
    (0..3).for_each(|server| processes.kill_server(server));

    // A settings file each, because a process that reloads finds its own ports there.
    let (beside, stopped) = (site.beside(), site.beside());
    let mut waiting = [start_waiting(&site, "attribute"), start_waiting(&beside, "export")];
    let log = start_waiting(&stopped, "export").stop();
    assert!(log.contains("stopped while waiting for HBase"), "{log}");
    processes.start_master();
    (0..3).for_each(|server| processes.start_server(server));
    for adtrail in &mut waiting {
        adtrail.await_ready().unwrap_or_else(|log| panic!("adtrail has ended:\n{log}"));
        adtrail.await_log("settings reloaded");
    }
    let [worker, exporter] = waiting;
    await_all_read(&site);
    WORKLOAD.check(&site, &exporter);
    for adtrail in [worker, exporter] {
        let warnings = adtrail.stop().matches(WARNING).count() as u64;
        // Not at each attempt.
        assert!(warnings <= 1 + DEADLINE.as_secs() / WARNING_INTERVAL_S, "{warnings} warnings");
    }
}
