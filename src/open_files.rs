//! The limit of open files.

use std::fs;
use std::path::Path;

use config::Config;
use export::CONNECTIONS_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for connections to brokers, region servers and the registry, and for logs and temporary files.
const OTHERS: u64 = 1_024;

/// Raises the soft limit to the hard limit. The low soft limit of most systems is meant for programs that use `select`.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, the soft limit still applies, and the service warns if it is too low.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Warns if the limit is lower than the service may need.
pub(crate) fn check_limit(config: &Config) {
    let tables = config.store.hbase.is_none().then(|| table_files(&config.store.path));
    let collector = config.collect.as_ref().map_or(0, |_| collect::CONNECTIONS_MAX);
    // The data listener and the admin listener have the same limit.
    warn_of_shortfall(2 * CONNECTIONS_MAX + collector, tables.unwrap_or(0));
}

/// Warns if the limit is lower than a process that only collects may need: it has no store, and no data listener.
pub(crate) fn check_limit_of_collector() {
    warn_of_shortfall(CONNECTIONS_MAX + collect::CONNECTIONS_MAX, 0);
}

fn warn_of_shortfall(connections: usize, tables: u64) {
    let limit = getrlimit(Resource::Nofile).current;
    if let Some((limit, needed)) = shortfall(limit, connections as u64, tables) {
        tracing::warn!(
            limit,
            needed,
            "the hard limit of open files is lower than adtrail may need: raise it with LimitNOFILE= (systemd), \
             ulimits.nofile (Docker Compose) or `ulimit -n`, and restart"
        );
    }
}

/// Counts the table files of RocksDB. It keeps all of them open.
fn table_files(store: &Path) -> u64 {
    let entries = fs::read_dir(store).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().extension().is_some_and(|kind| kind == "sst")).count()
        as u64
}

/// Returns the limit and the needed number, if the limit is too low. Twice the present table files leave room for a
/// store that grows, and for compactions, which delete files only after they have written others.
fn shortfall(limit: Option<u64>, connections: u64, tables: u64) -> Option<(u64, u64)> {
    let needed = connections + OTHERS + 2 * tables;
    limit.filter(|limit| *limit < needed).map(|limit| (limit, needed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_limit() {
        let limit = getrlimit(Resource::Nofile);
        let lower = limit.maximum.map(|maximum| maximum - 1);
        setrlimit(Resource::Nofile, Rlimit { current: lower, ..limit }).unwrap();
        raise_limit();
        assert_eq!(getrlimit(Resource::Nofile).current, limit.maximum);
    }

    #[test]
    fn a_limit_is_compared_with_connections_and_table_files() {
        let check = |limit, tables, needed| {
            let found = shortfall(Some(limit), 1_024, tables);
            assert_eq!(found, Option::map(needed, |needed| (limit, needed)), "{limit} {tables}");
        };
        check(2_048, 0, None);
        check(2_047, 0, Some(2_048));
        check(4_048, 1_000, None);
        check(4_047, 1_000, Some(4_048));
        assert_eq!(shortfall(None, 1_024, 1_000_000), None);
    }

    #[test]
    fn table_files_are_counted() {
        let store = tempfile::tempdir().unwrap();
        for name in ["000012.sst", "000013.sst", "000014.log", "CURRENT", "sst"] {
            fs::write(store.path().join(name), "").unwrap();
        }
        assert_eq!(table_files(store.path()), 2);
        assert_eq!(table_files(&store.path().join("missing")), 0);
    }
}
