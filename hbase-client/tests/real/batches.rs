//! Puts, gets and deletes.

use hbase_client::{Delete, Get, Mutation, Put, Scan, Selection};

use crate::support::hbase::HBase;
use crate::support::rows::{check_exact, key, read, write};

#[tokio::test]
async fn written_rows_are_read_by_key() {
    let (_, table) = HBase::shared().table("by-key", &["00000300", "00000600"]).await;
    write(&table, (0..1_000).step_by(2)).await;
    let gets = (0..1_000).rev().map(|row| Get::new(key(row))).collect();
    let found = table.get_many(gets).await;
    assert_eq!(found.len(), 1_000);
    for (row, found) in (0..1_000).rev().zip(found) {
        let found = found.unwrap();
        match row % 2 {
            0 => check_exact(&[found.expect("the row was written")], [row].into_iter()),
            _ => assert!(found.is_none(), "{row} was not written"),
        }
    }
    assert_eq!(table.get_many(Vec::new()).await.len(), 0);
}

#[tokio::test]
async fn cells_are_selected_by_column_time_and_version() {
    use hbase_client::{Family, TableSpec};
    let client = HBase::shared().client().await;
    let families = ["d", "e"].map(|name| Family::new(name).attribute("VERSIONS", "3"));
    let spec = families.into_iter().fold(TableSpec::new("selected"), TableSpec::family);
    client.admin().create(&spec, &[]).await.unwrap();
    let table = client.table("selected").unwrap();
    for time in [10, 20, 30] {
        let put = Put::new("r").cell_at(time, "d", "a", time.to_string());
        table.mutate(put.cell_at(time, "d", "b", "b").cell_at(time, "e", "c", "c")).await.unwrap();
    }
    let shown = async |selection: Selection| {
        let row = table.get(Get::new("r").select(selection)).await.unwrap();
        let cells = row.iter().flat_map(|row| row.cells());
        let show = |cell: &hbase_client::Cell| {
            let (family, qualifier) =
                (cell.family().escape_ascii(), cell.qualifier().escape_ascii());
            format!("{family}{qualifier}{}", cell.timestamp())
        };
        cells.map(show).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(shown(Selection::all()).await, "da30 db30 ec30");
    assert_eq!(shown(Selection::all().family("e")).await, "ec30");
    assert_eq!(shown(Selection::all().column("d", "a").versions(2)).await, "da30 da20");
    assert_eq!(shown(Selection::all().columns_between("b".."c")).await, "db30");
    assert_eq!(shown(Selection::all().columns_between("b".."d")).await, "db30 ec30");
    assert_eq!(shown(Selection::all().columns_max(1)).await, "da30 ec30");
}

#[tokio::test]
async fn long_row_is_read_a_page_of_columns_at_a_time() {
    let (_, table) = HBase::shared().table("long-row", &[]).await;
    let name = |column: u32| format!("{column:05}");
    let put = (0..5_000).fold(Put::new("r"), |put, column| put.cell("d", name(column), "v"));
    table.mutate(put).await.unwrap();
    for from in [0, 1, 2_500, 4_990, 4_999, 5_000] {
        let selection = Selection::all().columns_between(name(from)..name(99_999)).columns_max(16);
        let row = table.get(Get::new("r").select(selection.clone())).await.unwrap();
        let mut scan = table.scan(Scan::all().select(selection));
        let scanned = scan.next().await.transpose().unwrap();
        let shown = |row: Option<hbase_client::Row>| -> Vec<_> {
            row.iter().flat_map(|row| row.cells()).map(|cell| cell.qualifier().to_vec()).collect()
        };
        let expected: Vec<_> =
            (from..5_000).take(16).map(|column| name(column).into_bytes()).collect();
        assert_eq!(shown(row), expected, "from {from}");
        assert_eq!(shown(scanned), expected, "a scan from {from}");
    }
}

#[tokio::test]
async fn deletes_hide_the_selected_cells() {
    let (_, table) = HBase::shared().table("deletes", &["m"]).await;
    let check = async |row: &'static str, delete: Delete, remaining: &[&str]| {
        let put = Put::new(row).cell_at(10, "d", "a", "1").cell_at(20, "d", "b", "2");
        table.mutate(put).await.unwrap();
        table.mutate(delete).await.unwrap();
        let found = table.get(Get::new(row)).await.unwrap();
        let cells = found.iter().flat_map(|row| row.cells());
        let found: Vec<_> = cells.map(|cell| cell.qualifier().escape_ascii().to_string()).collect();
        assert_eq!(found, remaining, "{row}");
    };
    check("row", Delete::new("row"), &[]).await;
    check("until", Delete::new("until").until(15), &["b"]).await;
    check("column", Delete::new("column").column("d", "a"), &["b"]).await;
    check("before", Delete::new("before").column_until(19, "d", "b"), &["a", "b"]).await;
    check("version", Delete::new("version").version(20, "d", "b"), &["a"]).await;
    check("family", Delete::new("z-family").family("d"), &["a", "b"]).await;
    check("z-family", Delete::new("z-family").family("d"), &[]).await;
}

#[tokio::test]
async fn each_row_of_a_batch_has_its_own_outcome() {
    let (_, table) = HBase::shared().table("outcomes", &["5"]).await;
    let wrong = |row: &'static str| Mutation::from(Put::new(row).cell("nope", "q", "v"));
    let fine = |row: &'static str| Mutation::from(Put::new(row).cell("d", "q", "v"));
    let empty = Mutation::from(Put::new("4"));
    let outcomes =
        table.mutate_many(vec![fine("1"), wrong("2"), fine("7"), wrong("8"), empty]).await;
    let failed: Vec<_> = outcomes.iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, true, false, true, true]);
    let message = outcomes[1].as_ref().unwrap_err().to_string();
    assert!(
        message.contains("NoSuchColumnFamily") && message.contains("use a family"),
        "{message}"
    );
    let found = read(&table, Scan::all()).await.unwrap();
    assert_eq!(found.iter().map(|row| row.key()).collect::<Vec<_>>(), [b"1", b"7"]);
}

#[tokio::test]
async fn large_batches_are_split_into_calls() {
    let (_, table) = HBase::shared().table("many-calls", &["00001000"]).await;
    let mut config = HBase::shared().config();
    (config.call_actions_max, config.call_bytes_max) = (7, 1_000);
    config.in_flight_bytes_max = 3_000;
    let client = hbase_client::Client::connect(config).await.unwrap();
    let small = client.table("many-calls").unwrap();
    write(&small, 0..2_000).await;
    check_exact(&read(&table, Scan::all()).await.unwrap(), 0..2_000);
    let too_long = Put::new("r").cell("d", "q", vec![0; 4_000]);
    let error = small.mutate(too_long).await.unwrap_err().to_string();
    assert!(error.contains("in_flight_bytes_max"), "{error}");
}

#[tokio::test]
async fn large_response_is_returned_in_parts() {
    // More than the 100 MB that a server puts into one response.
    const ROWS: u32 = 150;
    let (_, table) = HBase::shared().table("large", &[]).await;
    for row in 0..ROWS {
        let put = Put::new(key(row)).cell("d", "v", vec![row as u8; 1 << 20]);
        table.mutate(put).await.unwrap();
    }
    let gets = (0..ROWS).map(|row| Get::new(key(row))).collect();
    for (row, found) in (0..ROWS).zip(table.get_many(gets).await) {
        let found = found.unwrap().expect("the row was written");
        assert_eq!(found.value(b"d", b"v"), Some(&vec![row as u8; 1 << 20][..]));
    }
}
