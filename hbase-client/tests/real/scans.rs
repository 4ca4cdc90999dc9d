//! Scans.

use std::time::Duration;

use hbase_client::{Mutation, Put, Row, Scan, Selection};

use crate::support::hbase::HBase;
use crate::support::rows::{check_exact, key, read, write};

const SPLITS: [&str; 8] = [
    "00025000", "00050000", "00075000", "00100000", "00125000", "00150000", "00175000", "00190000",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_thousand_rows_over_nine_regions_come_back_byte_for_byte() {
    const ROWS: u32 = 200_000;
    let (_, table) = HBase::shared().table("whole", &SPLITS).await;
    // Written in mixed order, so that each batch has rows of all regions.
    let spread = |row: u32| (u64::from(row) * 7_919 % u64::from(ROWS)) as u32;
    for begin in (0..ROWS).step_by(10_000) {
        write(&table, (begin..begin + 10_000).map(spread)).await;
    }
    check_exact(&read(&table, Scan::all()).await.unwrap(), 0..ROWS);
    // Ranges within regions, and from the first row of a region to that of another.
    let range = |start, stop| Scan::range(key(start), key(stop));
    check_exact(&read(&table, range(30_001, 160_007)).await.unwrap(), 30_001..160_007);
    check_exact(&read(&table, range(25_000, 50_000)).await.unwrap(), 25_000..50_000);
    check_exact(&read(&table, range(49_990, 200_000).limit(25_020)).await.unwrap(), 49_990..75_010);
    check_exact(&read(&table, range(7, 9).limit(10)).await.unwrap(), 7..9);
    check_exact(&read(&table, range(9, 7)).await.unwrap(), 0..0);
    check_exact(&read(&table, Scan::prefix("000499")).await.unwrap(), 49_900..50_000);
    // Responses of any size.
    let small = range(74_000, 76_000).rows_per_response(33);
    check_exact(&read(&table, small).await.unwrap(), 74_000..76_000);
    let smaller = range(74_900, 75_100).responses(700, 1);
    check_exact(&read(&table, smaller).await.unwrap(), 74_900..75_100);
}

fn cells(row: &Row) -> usize {
    row.cells().len()
}

#[tokio::test]
async fn rows_larger_than_a_response_are_assembled() {
    const CELLS: usize = 60;
    let (_, table) = HBase::shared().table("partial", &["2"]).await;
    let wide = |row: u8| {
        let cell =
            |put: Put, cell: usize| put.cell("d", format!("{cell:03}"), vec![row; 100_000 + cell]);
        Mutation::from((0..CELLS).fold(Put::new(vec![b'0' + row]), cell))
    };
    for row in 0..4 {
        table.mutate(wide(row)).await.unwrap();
    }
    for bytes in [150_000, 1_000_000, 2 << 20] {
        let found = read(&table, Scan::all().responses(bytes, 2)).await.unwrap();
        assert_eq!(found.iter().map(cells).collect::<Vec<_>>(), [CELLS; 4], "{bytes} bytes");
        for (row, found) in (0..4).zip(&found) {
            let whole = found.cells().iter().enumerate().all(|(at, cell)| {
                cell.value() == vec![row; 100_000 + at]
                    && cell.qualifier() == format!("{at:03}").as_bytes()
            });
            assert!(whole, "row {row}");
        }
    }
    let limited = read(&table, Scan::all().responses(150_000, 1).limit(2)).await.unwrap();
    assert_eq!(limited.iter().map(cells).collect::<Vec<_>>(), [CELLS; 2]);
}

#[tokio::test]
async fn scan_continues_through_heartbeats() {
    // Servers respond before the call timeout even if they have found nothing.
    let (_, table) = HBase::shared().table("heartbeat", &["00100000"]).await;
    write(&table, 0..150_000).await;
    let put = Put::new(key(149_999)).cell_at(9_999_999, "d", "other", "found");
    table.mutate(put).await.unwrap();
    let mut config = HBase::shared().config();
    config.call_timeout = Duration::from_millis(120);
    // On a busy machine calls may time out, which is not progress.
    config.operation_timeout = Duration::from_secs(600);
    let client = hbase_client::Client::connect(config).await.unwrap();
    let selection = Selection::all().column("d", "other");
    let scan = Scan::all().select(selection);
    let found = read(&client.table("heartbeat").unwrap(), scan).await.unwrap();
    assert_eq!(found.iter().map(Row::key).collect::<Vec<_>>(), [key(149_999).as_bytes()]);
}

#[tokio::test]
async fn slow_and_dropped_readers_do_not_affect_scans() {
    let (_, table) = HBase::shared().table("slow-reader", &["00005000"]).await;
    write(&table, 0..10_000).await;
    let mut rows = table.scan(Scan::all().rows_per_response(100));
    let mut found = Vec::new();
    for count in 0..10_000 {
        if count == 3_000 {
            // Longer than the scanner's lease.
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        found.push(rows.next().await.unwrap().unwrap());
    }
    assert!(rows.next().await.is_none() && rows.next().await.is_none());
    check_exact(&found, 0..10_000);
    for _ in 0..20 {
        let mut rows = table.scan(Scan::all().rows_per_response(10));
        assert!(rows.next().await.unwrap().is_ok());
    }
    check_exact(&read(&table, Scan::all()).await.unwrap(), 0..10_000);
}
