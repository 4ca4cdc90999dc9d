//! Decisions, their rows, and positions.

use attribution::facts::event::{Activation, Fact, SpreadId};
use attribution::ledger::record::{CurrentRow, FactRecord, RowMeta};
use attribution::ledger::{DecisionWrite, Position, Progress};
use attribution::rules::build_row;
use attribution::rules::classify::{ActivationKey, InstallChain, InstallChains};
use attribution::rules::row::{InstallType, RejectReason, Status};
use attribution::rules::winner::{Credit, Decision};

use super::support::facts::{Draft, activation, effect, millis};
use super::support::run::{LedgerUnderTest, position};
use super::{record_of, write};

suite! {
    a_row_has_the_key_of_its_campaign_and_time
    a_replaced_row_is_deleted_in_the_same_commit
    a_row_with_the_same_key_is_overwritten
    decisions_are_read_back_with_their_records
    rows_are_read_in_export_order
    positions_are_read_back
}

fn progress(positions: &[Position]) -> Progress {
    Progress { positions: positions.to_vec(), consumed_until: None }
}

/// Returns a decision that credits an activation or effect to a campaign.
pub fn decision_write(draft: Draft, spreadid: u32, replaced: Option<CurrentRow>) -> DecisionWrite {
    let fact = Fact::from(draft);
    let credit = Credit {
        spreadid: SpreadId(spreadid),
        ..Credit::uncredited(Status::Rejected, Some(RejectReason::CtitTooShort))
    };
    let decision =
        Decision { install_type: InstallType::Reinstall, original: Some("o".into()), credit };
    let mut row = match &fact {
        Fact::Activation(activation) => build_row::activation_row(activation, &decision),
        Fact::Effect(effect) => {
            let credit = decision.credit.clone();
            let inheritance = attribution::rules::inherit::Inheritance {
                activation: None,
                credit,
                credit_of: None,
            };
            build_row::effect_row(effect, inheritance)
        }
        Fact::Touch(_) => panic!("touches have no decisions"),
    };
    row.revision = replaced.map_or(1, |current_row| current_row.revision + 1);
    let current_row = CurrentRow {
        revision: row.revision,
        event_time: row.event_time,
        spreadid: row.spreadid,
        status: row.status,
        digest: u64::MAX,
        row_meta: RowMeta::default(),
    };
    let key = write(fact.clone(), &[]).key;
    let mut record = FactRecord::from(fact);
    match &mut record {
        FactRecord::Activation(record) => {
            record.chains = chains(&record.fact);
            record.decision = Some(decision);
            record.current_row = Some(current_row);
        }
        FactRecord::Effect(record) => record.current_row = Some(current_row),
        FactRecord::Touch(_) => {}
    }
    DecisionWrite { key, record, row, replaced, callbacks: Vec::new() }
}

/// Returns two install chains: one that starts with the activation, and one that it continues.
fn chains(activation: &Activation) -> InstallChains {
    let key = ActivationKey::of(activation);
    let earlier = ActivationKey { time: key.time.minus(1), id: "other".into() };
    let continued = InstallChain { install: earlier, last_counted: key.clone() };
    InstallChains {
        chain_indexes: vec![0, 1, 0],
        chains: vec![InstallChain { install: key.clone(), last_counted: key }, continued],
    }
}

pub fn commit(
    ledger: &mut impl LedgerUnderTest,
    decisions: impl IntoIterator<Item = DecisionWrite>,
) {
    let conflicts = ledger
        .commit(decisions.into_iter().collect(), &Progress::default())
        .expect("rows are committed");
    assert!(conflicts.is_empty(), "conflicts without another writer");
    ledger.wait_for_commit().expect("the commit succeeds");
}

/// Returns event id, time and campaign of all rows.
fn rows(ledger: &impl LedgerUnderTest) -> Vec<String> {
    let shorten = |decision: &str| {
        let words: Vec<_> = decision.split(' ').collect();
        format!("{} {} {}", words[3], words[1], words[7])
    };
    ledger.row_texts().iter().map(|row| shorten(&row.decision)).collect()
}

fn a_row_has_the_key_of_its_campaign_and_time(ledger: &mut impl LedgerUnderTest) {
    commit(ledger, [decision_write(activation("a", millis(5)), 7, None)]);
    assert_eq!(rows(ledger), ["a @5 7"]);
}

fn a_replaced_row_is_deleted_in_the_same_commit(ledger: &mut impl LedgerUnderTest) {
    let first = decision_write(activation("a", millis(5)), 7, None);
    commit(ledger, [first.clone()]);
    let second = decision_write(activation("a", millis(5)), 8, first.record.current_row().copied());
    commit(ledger, [second.clone()]);
    assert_eq!(rows(ledger), ["a @5 8"]);
    let third = decision_write(activation("a", millis(4)), 8, second.record.current_row().copied());
    commit(ledger, [third.clone()]);
    assert_eq!(rows(ledger), ["a @4 8"]);
    let other = decision_write(effect("e", millis(5)), 7, None);
    let fourth = decision_write(activation("a", millis(3)), 0, third.record.current_row().copied());
    commit(ledger, [other, fourth]);
    assert_eq!(rows(ledger), ["a @3 0", "e @5 7"]);
}

fn a_row_with_the_same_key_is_overwritten(ledger: &mut impl LedgerUnderTest) {
    let first = decision_write(activation("a", millis(5)), 7, None);
    commit(ledger, [first.clone()]);
    let current_row = first.record.current_row().copied();
    let again = decision_write(activation("a", millis(5)).ip("203.0.113.9"), 7, current_row);
    commit(ledger, [again]);
    assert_eq!(rows(ledger), ["a @5 7"]);
    assert!(ledger.row_texts()[0].whole.contains("203.0.113.9"));
}

fn decisions_are_read_back_with_their_records(ledger: &mut impl LedgerUnderTest) {
    let decisions = [
        decision_write(activation("a", millis(5)), 7, None),
        decision_write(effect("e", millis(6)), 0, None),
    ];
    commit(ledger, decisions.clone());
    for decision in decisions {
        let mut found = record_of(ledger, decision.key).expect("the record exists");
        // The row metadata differs between ledgers.
        found.current_row_mut().expect("the event has a row").row_meta = RowMeta::default();
        assert_eq!(found, decision.record);
    }
}

fn rows_are_read_in_export_order(ledger: &mut impl LedgerUnderTest) {
    commit(
        ledger,
        [
            decision_write(activation("y", millis(1)).of_app_y(), 1, None),
            decision_write(activation("late", millis(9)), 1, None),
            decision_write(activation("big", millis(5)), u32::MAX, None),
            decision_write(activation("small", millis(5)), 0, None),
            decision_write(effect("early", millis(0)), 300, None),
        ],
    );
    assert_eq!(
        rows(ledger),
        ["early @0 300", "small @5 0", "big @5 4294967295", "late @9 1", "y @1 1"]
    );
}

fn positions_are_read_back(ledger: &mut impl LedgerUnderTest) {
    let at = |topic: &str, partition, next| position(topic, partition, next);
    let first = [at("clicks", 0, 5), at("clicks", 11, 6), at("clicks.more", 0, 7)];
    ledger.commit(Vec::new(), &progress(&first)).expect("positions are committed");
    let mut found = ledger.positions().expect("the positions are readable");
    found.sort();
    assert_eq!(found, first);
    let second = [at("clicks", 11, 1 << 40), at("effects", 0, 0)];
    ledger.commit(Vec::new(), &progress(&second)).expect("positions are committed");
    let mut found = ledger.positions().expect("the positions are readable");
    found.sort();
    assert_eq!(
        found,
        [
            at("clicks", 0, 5),
            at("clicks", 11, 1 << 40),
            at("clicks.more", 0, 7),
            at("effects", 0, 0),
        ]
    );
}
