//! Damaged bytes lead to an error, never to a panic.

use adtrail_store::StoreError;
use adtrail_store::layout::codec::fact_record;
use adtrail_store::layout::codec::row::RowView;
use adtrail_store::layout::key;
use attribution::facts::event::{EventTime, Family};
use attribution::ledger::{Facts, Ledger};
use rocksdb::{DB, Options};

use super::support::facts::{A, HOUR, a_plus, activation, click, effect, identified, impression};
use super::support::rules::{X, apps, rules};
use super::support::run::{on_disk, open, worker_after};
use super::{scan, touch};

/// Decodes a value of one kind.
type Decode = fn(&[u8]) -> Result<(), StoreError>;

/// Values of all kinds with their decoders.
fn values() -> Vec<(Vec<u8>, Decode)> {
    let facts = identified([
        click("c1", a_plus(-HOUR)).lookback(HOUR * 2).site("s").prop("callback", "t").retargeting(),
        impression("i2", a_plus(-HOUR)).prop("callback", "u").prop("ad_name", "ü, 1"),
        activation("a", A).click_id("c1").install_begin(a_plus(-1)).prop("ü", "1,2"),
        effect("e", a_plus(1)).revenue("9.99", "CNY").ip("203.0.113.9"),
    ]);
    let keys: Vec<_> = facts.iter().map(|fact| super::write(fact.clone(), &[]).key).collect();
    let (store, _dir) = on_disk(&rules());
    let mut worker = worker_after(store, &rules(), vec![facts]);
    let mut values: Vec<(Vec<u8>, Decode)> = Vec::new();
    for (key, found) in
        keys.iter().zip(worker.ledger_mut().records(&keys).expect("the lookup succeeds"))
    {
        let mut value = Vec::new();
        fact_record::encode(&found.expect("the record exists"), &mut value);
        values.push((
            value,
            match key.family {
                Family::Touch => |bytes| fact_record::decode(Family::Touch, X, bytes).map(drop),
                Family::Activation => {
                    |bytes| fact_record::decode(Family::Activation, X, bytes).map(drop)
                }
                Family::Effect => |bytes| fact_record::decode(Family::Effect, X, bytes).map(drop),
            },
        ));
    }
    let visit = |_: &_, value: &[u8]| {
        values.push((value.to_vec(), |bytes| RowView::decode(bytes).map(drop)));
        std::ops::ControlFlow::Continue(())
    };
    let reader = worker.ledger().reader();
    reader
        .scan_rows(&apps()[0], EventTime::default(), EventTime::MAX, visit)
        .expect("the scan succeeds");
    assert_eq!(values.len(), 6);
    values
}

#[test]
fn truncated_or_extended_values_are_errors() {
    for (mut value, decode) in values() {
        decode(&value).expect("the value is valid");
        assert!((0..value.len()).all(|len| decode(&value[..len]).is_err()));
        value.push(0);
        decode(&value).expect_err("the value has an extra byte");
    }
}

#[test]
fn flipped_bits_never_cause_a_panic() {
    let mut errors = 0;
    for (value, decode) in values() {
        for index in 0..value.len() {
            for bit in 0..8 {
                let mut damaged = value.clone();
                damaged[index] ^= 1 << bit;
                errors += usize::from(decode(&damaged).is_err());
            }
            // A length or count of 2^63.
            let mut damaged = value[..index].to_vec();
            damaged.extend([0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1]);
            damaged.extend(&value[index + 1..]);
            errors += usize::from(decode(&damaged).is_err());
        }
    }
    assert!(errors > 1_000, "too few errors: {errors}");
}

#[test]
fn damage_in_the_store_is_reported() {
    let (store, dir) = on_disk(&rules());
    let mut worker = worker_after(store, &rules(), vec![identified([activation("a", A)])]);
    super::record_facts(worker.ledger_mut(), [touch("c", 5, &[1])]);
    super::commit(worker.ledger_mut());
    // RocksDB cannot recover a log with merges without their operator.
    worker.ledger().compact().unwrap();
    drop(worker);
    {
        let tables =
            DB::list_cf(&Options::default(), dir.path()).expect("RocksDB lists the tables");
        let tables = DB::open_cf(&Options::default(), dir.path(), tables).expect("RocksDB opens");
        let table = |name| tables.cf_handle(name).expect("the table exists");
        let write = touch("c", 5, &[1]);
        tables
            .put_cf(table("touches-1"), key::record(&write.key), b"\x01nonsense")
            .expect("the write succeeds");
        let entry = key::index(write.index[0], &write.key, write.record.time());
        tables.put_cf(table("touches-1"), entry, b"short").expect("the write succeeds");
        tables.put_cf(table("offsets"), b"clicks", b"1").expect("the write succeeds");
    }
    let mut store = open(dir.path(), &rules());
    let check_corrupt = |what: &str, result: Result<(), StoreError>| {
        let error = result.expect_err(what);
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    };
    check_corrupt("records", store.records(&[touch("c", 5, &[]).key]).map(drop));
    check_corrupt("scan", store.scan(&[scan(1, 9, 0)]).map(drop));
    check_corrupt("positions", store.positions().map(drop));
}
