//! Administration of tables.

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
async fn table_is_created_as_specified() {
    let client = HBase::shared().client().await;
    let (admin, expected) = (client.admin(), spec("described"));
    admin.create(&expected, &["00000100".into(), "00000200".into()]).await.unwrap();
    let found = admin.describe("described").await.unwrap();
    assert_eq!(found.families.len(), 1);
    for (name, value) in &expected.families[0].attributes {
        assert_eq!(found.families[0].value(name), Some(value.as_str()), "{name}");
    }
    assert_eq!(found.families[0].configuration, expected.families[0].configuration);
    let attribute = ("NORMALIZATION_ENABLED".to_owned(), "false".to_owned());
    assert!(found.attributes.contains(&attribute), "{found:?}");
    assert!(admin.list().await.unwrap().iter().any(|name| name.to_string() == "described"));
    let table = client.table("described").unwrap();
    // The usual test rows have timestamps of 1970 and would be expired, so this one gets the server's time.
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
        let load = region.load.expect("the server returns the load");
        assert!(load.write_requests >= 10_000, "{load:?}");
    }
}

/// `hbase:meta` sorts regions by start row, not by the bytes of its keys: start rows may contain commas and smaller
/// bytes.
#[tokio::test]
async fn regions_with_any_start_bytes_are_listed_in_order() {
    // A busy machine takes more than a minute to create 250 regions.
    let mut config = HBase::shared().config();
    config.operation_timeout = Duration::from_secs(300);
    let client = Client::connect(config).await.unwrap();
    // More regions than one call reads.
    let splits: Vec<Bytes> = (1..=250).map(|byte| Bytes::from(vec![byte, b',', byte])).collect();
    let spec = TableSpec::new("any-bytes").family(Family::new("d"));
    client.admin().create(&spec, &splits).await.unwrap();
    let regions = client.admin().regions("any-bytes").await.unwrap();
    let meta = client.admin().regions("hbase:meta").await.unwrap();
    assert!(matches!(&meta[..], [region] if region.server.is_some()), "{meta:?}");
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
    // The same holds for another client, which has no cached locations.
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
async fn rejected_table_specs_are_explained() {
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
    let invalid = |name: &str, value: &str| {
        TableSpec::new("odd").family(Family::new("d").attribute(name, value))
    };
    check(&invalid("BLOCKSIZE", "1"), "lock").await;
    check(&invalid("VERSIONS", "-1"), "ersions").await;
    // The native library of ZSTD is not installed here.
    check(&invalid("COMPRESSION", "ZSTD"), "choose GZ or SNAPPY").await;
}

#[tokio::test]
async fn cells_expire_by_the_ttl_of_their_put() {
    let (_, table) = HBase::shared().table("lives", &[]).await;
    table.mutate(Put::new("short").cell("d", "v", "1").ttl(1)).await.unwrap();
    table.mutate(Put::new("long").cell("d", "v", "1").ttl(3_600_000)).await.unwrap();
    let put = Put::new("long").cell("d", "v", "2").ttl(1);
    let check = CheckAndMutate::where_equal("d", "v", "1", put);
    assert!(table.check_and_mutate(check).await.unwrap(), "the condition holds");
    table.mutate(Put::new("ever").cell("d", "v", "1")).await.unwrap();
    // Once the newer version of "long" has expired, its older one is visible again.
    let expected: [(&[u8], Option<&[u8]>); 2] = [(b"ever", Some(b"1")), (b"long", Some(b"1"))];
    let started = Instant::now();
    loop {
        let rows = read(&table, Scan::all()).await.unwrap();
        let found: Vec<_> = rows.iter().map(|row| (row.key(), row.value(b"d", b"v"))).collect();
        if found == expected {
            break;
        }
        assert!(started.elapsed() < DEADLINE, "{found:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
