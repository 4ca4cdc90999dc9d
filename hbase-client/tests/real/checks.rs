//! Conditional changes.

use hbase_client::{CheckAndMutate, Delete, Get, Put, Table};

use crate::support::hbase::HBase;

fn counter(row: &str, value: u32) -> Put {
    Put::new(row.to_owned()).cell("d", "n", value.to_string())
}

async fn read(table: &Table, row: &str) -> Option<u32> {
    let row = table.get(Get::new(row.to_owned())).await.unwrap()?;
    let text = String::from_utf8(row.value(b"d", b"n")?.to_vec()).unwrap();
    Some(text.parse().unwrap())
}

fn increment(row: &str, from: Option<u32>) -> CheckAndMutate {
    let put = counter(row, from.map_or(1, |from| from + 1));
    match from {
        None => CheckAndMutate::where_absent("d", "n", put),
        Some(from) => CheckAndMutate::where_equal("d", "n", from.to_string(), put),
    }
}

#[tokio::test]
async fn change_is_applied_if_the_condition_holds() {
    let (_, table) = HBase::shared().table("checks", &["m"]).await;
    for row in ["a", "z"] {
        assert!(!table.check_and_mutate(increment(row, Some(1))).await.unwrap());
        assert!(table.check_and_mutate(increment(row, None)).await.unwrap());
        assert!(!table.check_and_mutate(increment(row, None)).await.unwrap());
        assert!(table.check_and_mutate(increment(row, Some(1))).await.unwrap());
        assert_eq!(read(&table, row).await, Some(2));
        let delete = Delete::new(row).column("d", "n");
        let delete = CheckAndMutate::where_equal("d", "n", "2", delete);
        assert!(table.check_and_mutate(delete).await.unwrap());
        assert_eq!(read(&table, row).await, None);
    }
}

#[tokio::test]
async fn each_row_of_a_batch_has_its_own_condition() {
    let (_, table) = HBase::shared().table("check-batch", &["3", "6"]).await;
    let rows: Vec<String> = (0..100).map(|row| format!("{row:02}")).collect();
    // Every third row exists.
    for row in rows.iter().step_by(3) {
        table.mutate(counter(row, 1)).await.unwrap();
    }
    let checks = rows.iter().map(|row| increment(row, None)).collect();
    let outcomes = table.check_and_mutate_many(checks).await;
    for (row, is_applied) in outcomes.into_iter().enumerate() {
        assert_eq!(is_applied.unwrap(), row % 3 != 0, "{row}");
    }
    for row in &rows {
        assert_eq!(read(&table, row).await, Some(1), "{row}");
    }
}

#[tokio::test]
async fn wrong_family_in_a_batch_fails_only_its_row() {
    let (_, table) = HBase::shared().table("check-wrong", &[]).await;
    let wrong = |family: &'static str, into: &'static str| {
        let put = Put::new("b").cell(into, "n", "1");
        CheckAndMutate::where_absent(family, "n", put)
    };
    let checks =
        vec![increment("a", None), wrong("nope", "d"), wrong("d", "nope"), increment("c", None)];
    let outcomes = table.check_and_mutate_many(checks).await;
    let applied: Vec<_> = outcomes.iter().map(|outcome| outcome.as_ref().ok()).collect();
    assert_eq!(applied, [Some(&true), None, None, Some(&true)], "{outcomes:?}");
    assert_eq!((read(&table, "a").await, read(&table, "c").await), (Some(1), Some(1)));
}
