//! Tables as a whole.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hbase_client::{CheckAndMutate, Client, Error, Family, Put, RetryAdvice, Scan, TableSpec};

use crate::support::DEADLINE;
use crate::support::hbase::HBase;
use crate::support::rows::{check_exact, read, write};

fn spec(name: &str) -> TableSpec {
    let family = Family::new("d")
        .attribute("DATA_BLOCK_ENCODING", "FAST_DIFF")
        .attribute("COMPRESSION", "GZ")
        .attribute("TTL", "7776000")
        .attribute("VERSIONS", "1")
        .attribute("BLOCKSIZE", "32768")
        .attribute("BLOOMFILTER", "ROWPREFIX_FIXED_LENGTH")
        .configuration("RowPrefixBloomFilter.prefix_length", "6");
    TableSpec::new(name).family(family).attribute("NORMALIZATION_ENABLED", "false")
}

#[tokio::test]
async fn table_is_made_as_it_is_described() {
    let client = HBase::shared().client().await;
    let (admin, wanted) = (client.admin(), spec("described"));
    admin.create(&wanted, &["00000100".into(), "00000200".into()]).await.unwrap();
    let found = admin.describe("described").await.unwrap();
    assert_eq!(found.families.len(), 1);
    for (name, value) in &wanted.families[0].attributes {
        assert_eq!(found.families[0].value(name), Some(value.as_str()), "{name}");
    }
    assert_eq!(found.families[0].configuration, wanted.families[0].configuration);
    let attribute = ("NORMALIZATION_ENABLED".to_owned(), "false".to_owned());
    assert!(found.attributes.contains(&attribute), "{found:?}");
    assert!(admin.list().await.unwrap().iter().any(|name| name.to_string() == "described"));
    let table = client.table("described").unwrap();
    // Rows are of 1970 and expired: what is written with the server's time is not.
    table.mutate(Put::new("00000150").cell("d", "v", "1")).await.unwrap();
    assert_eq!(read(&table, Scan::all()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn regions_have_ranges_servers_and_sizes() {
    let (client, table) = HBase::shared().table("regions", &["00010000", "00020000"]).await;
    write(&table, 0..30_000).await;
    let admin = client.admin();
    admin.flush("regions").await.unwrap();
    let regions = admin.regions("regions").await.unwrap();
    let ranges: Vec<_> = regions.iter().map(|r| (&r.start[..], &r.end[..])).collect();
    let (first, second) = (&b"00010000"[..], &b"00020000"[..]);
    assert_eq!(ranges, [(&b""[..], first), (first, second), (second, &b""[..])]);
    for region in &regions {
        assert!(region.server.is_some());
        let load = region.load.expect("its server tells");
        assert!(load.write_requests >= 10_000, "{load:?}");
    }
}

/// `hbase:meta` has them in the order of where they begin, and not in that of its keys' bytes: a comma and what
/// is less than one are bytes like others.
#[tokio::test]
async fn regions_begin_at_any_bytes() {
    // So many regions take a busy machine more than a minute.
    let mut config = HBase::shared().config();
    config.operation_timeout = Duration::from_secs(300);
    let client = Client::connect(config).await.unwrap();
    // More than are read at a time.
    let splits: Vec<Bytes> = (1..=250).map(|byte| Bytes::from(vec![byte, b',', byte])).collect();
    let spec = TableSpec::new("any-bytes").family(Family::new("d"));
    client.admin().create(&spec, &splits).await.unwrap();
    let regions = client.admin().regions("any-bytes").await.unwrap();
    let of_meta = client.admin().regions("hbase:meta").await.unwrap();
    assert!(matches!(&of_meta[..], [region] if region.server.is_some()), "{of_meta:?}");
    let starts: Vec<_> = regions.into_iter().map(|region| region.start).skip(1).collect();
    assert_eq!(starts, splits);
}

#[tokio::test]
async fn table_is_disabled_enabled_and_deleted() {
    let (client, table) = HBase::shared().table("short-lived", &["00000500"]).await;
    write(&table, 0..1_000).await;
    let admin = client.admin();
    let put = || Put::new("r").cell("d", "v", "1");

    let error = admin.delete("short-lived").await.unwrap_err();
    assert!(error.to_string().contains("disable the table first"), "{error}");
    admin.disable("short-lived").await.unwrap();
    let error = table.mutate(put()).await.unwrap_err();
    assert!(matches!(error, Error::Disabled { .. }), "{error}");
    let error = read(&table, Scan::all()).await.unwrap_err();
    assert!(matches!(error, Error::Disabled { .. }), "{error}");
    // A client that does not know of it finds it out.
    admin.enable("short-lived").await.unwrap();
    check_exact(&read(&table, Scan::all()).await.unwrap(), 0..1_000);
    let other = HBase::shared().client().await.table("short-lived").unwrap();
    check_exact(&read(&other, Scan::all()).await.unwrap(), 0..1_000);
    admin.disable("short-lived").await.unwrap();
    let error = other.mutate(put()).await.unwrap_err();
    assert!(matches!(error, Error::Disabled { .. }), "{error}");
    admin.delete("short-lived").await.unwrap();
    for table in [table, other] {
        let error = table.mutate(put()).await.unwrap_err();
        assert!(matches!(error, Error::NoTable { .. }), "{error}");
    }
    let error = admin.describe("short-lived").await.unwrap_err();
    assert!(matches!(error, Error::NoTable { .. }), "{error}");
}

#[tokio::test]
async fn what_can_not_be_made_says_why() {
    let client = HBase::shared().client().await;
    let admin = client.admin();
    let check = async |spec: &TableSpec, expected: &str| {
        let error = admin.create(spec, &[]).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.advice(), RetryAdvice::Change, "{error}");
    };
    let spec = |name: &str| TableSpec::new(name).family(Family::new("d"));
    admin.create(&spec("made-twice"), &[]).await.unwrap();
    check(&spec("made-twice"), "TableExistsException").await;
    check(&spec("nowhere:t"), "create the namespace first").await;
    check(&TableSpec::new("no-family"), "at least one family").await;
    let odd = |name: &str, value: &str| {
        TableSpec::new("odd").family(Family::new("d").attribute(name, value))
    };
    check(&odd("BLOCKSIZE", "1"), "lock").await;
    check(&odd("VERSIONS", "-1"), "ersions").await;
    // Where its native library is missing, as here.
    check(&odd("COMPRESSION", "ZSTD"), "choose GZ or SNAPPY").await;
}

#[tokio::test]
async fn cells_live_as_long_as_their_put_says() {
    let (_, table) = HBase::shared().table("lives", &[]).await;
    table.mutate(Put::new("short").cell("d", "v", "1").ttl(1)).await.unwrap();
    table.mutate(Put::new("long").cell("d", "v", "1").ttl(3_600_000)).await.unwrap();
    let check = |row: &str| {
        let put = Put::new(row.to_owned()).cell("d", "v", "2").ttl(1);
        CheckAndMutate::where_equal("d", "v", "1", put)
    };
    assert!(table.check_and_mutate(check("long")).await.unwrap(), "a condition that holds");
    table.mutate(Put::new("ever").cell("d", "v", "1")).await.unwrap();
    let started = Instant::now();
    let rows = loop {
        let rows = read(&table, Scan::all()).await.unwrap();
        if !rows.iter().any(|row| row.key() == b"short") {
            break rows;
        }
        assert!(started.elapsed() < DEADLINE, "a cell lives longer than its put says");
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    let left: Vec<_> = rows.iter().map(|row| (row.key(), row.value(b"d", b"v"))).collect();
    // Of the one that was changed the earlier version is there again: it lives longer.
    assert!(left.contains(&(b"ever", Some(b"1"))), "{left:?}");
}
