//! Which message is the fact (the contract's identity rule), and making facts readable.

use std::cmp::Ordering;
use std::collections::HashSet;

use foldhash::fast::FixedState;

use super::affected::touch_scans;
use super::{Desk, Report};
use crate::canonical;
use crate::event::{Activation, Fact};
use crate::ids::DeviceIds;
use crate::ledger::{ActivationHome, EffectHome, FactKey, FactWrite, Home, Ledger, Scan};
use crate::matching::{self, MatchKey};
use crate::policy::{AppPolicy, Policy};

/// What stands in the ledger after a batch was admitted, as far as decisions depend on it.
#[derive(Default)]
pub struct Settled {
    /// Where the activations stand that the batch's touches can change.
    pub touch_scans: Vec<Scan>,
    pub activations: Vec<FactKey>,
    pub effects: Vec<FactKey>,
    /// Activations that were replaced, as they were.
    pub outgoing_activations: Vec<(FactKey, Activation)>,
}

/// What became of one message.
struct Outcome {
    key: FactKey,
    is_known: bool,
    /// The fact's home, of activations and effects.
    home: Option<Home>,
    touch_scans: Vec<Scan>,
    outgoing: Option<Activation>,
}

impl<L: Ledger> Desk<'_, L> {
    /// Settles identities among the facts and against the ledger, and records what is new.
    pub fn admit(&mut self, facts: Vec<Fact>, report: &mut Report) -> Result<Settled, L::Error> {
        let mut waiting = self.least(facts, report);
        let mut settled = Settled::default();
        while !waiting.is_empty() {
            let keys: Vec<FactKey> = waiting.iter().map(|(key, _)| *key).collect();
            let homes = self.ledger().homes(&keys)?;
            let mut writes = Vec::with_capacity(keys.len());
            let mut outcomes = Vec::with_capacity(keys.len());
            for ((key, fact), home) in waiting.into_iter().zip(homes) {
                let Some(app) = self.app(&key) else { continue };
                let (outcome, write) = settle(key, fact, home, self.policy, app);
                outcomes.push(outcome);
                writes.extend(write);
            }
            let lost = self.ledger().record(writes)?;
            let lost_keys: HashSet<FactKey, FixedState> =
                lost.iter().map(|write| write.key).collect();
            for outcome in outcomes {
                if lost_keys.is_empty() || !lost_keys.contains(&outcome.key) {
                    self.absorb(outcome, &mut settled, report);
                }
            }
            waiting = lost.into_iter().map(|write| (write.key, into_fact(write.home))).collect();
        }
        Ok(settled)
    }

    /// Of the messages with one id, the least, in key order; the others are redelivered.
    fn least(&self, facts: Vec<Fact>, report: &mut Report) -> Vec<(FactKey, Fact)> {
        let mut order: Vec<(FactKey, usize)> = facts
            .iter()
            .enumerate()
            .map(|(index, fact)| {
                (matching::fact_key(fact.family(), fact.pid(), fact.id()), index)
            })
            .collect();
        order.sort_unstable();
        let mut facts: Vec<Option<Fact>> = facts.into_iter().map(Some).collect();
        let mut least: Vec<(FactKey, Fact)> = Vec::with_capacity(order.len());
        for (key, index) in order {
            let (Some(fact), Some(app)) = (facts[index].take(), self.app(&key)) else { continue };
            match least.last_mut() {
                Some((last, standing)) if *last == key => {
                    report.admitted_mut(key.family).redelivered += 1;
                    if canonical::compare(&fact, standing, &app.key) == Ordering::Less {
                        *standing = fact;
                    }
                }
                _ => least.push((key, fact)),
            }
        }
        least
    }

    fn absorb(&mut self, outcome: Outcome, settled: &mut Settled, report: &mut Report) {
        let count = report.admitted_mut(outcome.key.family);
        if outcome.is_known {
            count.redelivered += 1;
        } else {
            count.accepted += 1;
        }
        settled.touch_scans.extend(outcome.touch_scans);
        settled
            .outgoing_activations
            .extend(outcome.outgoing.map(|activation| (outcome.key, activation)));
        let Some(home) = outcome.home else { return };
        match home {
            Home::Activation(_) => settled.activations.push(outcome.key),
            Home::Effect(_) => settled.effects.push(outcome.key),
            Home::Touch(_) => {}
        }
        self.put(outcome.key, home);
    }
}

/// Holds a message against what its id stands for already. What is known is decided on again:
/// after a crash between fact and decision (HBase) its redelivery is what completes it.
fn settle(
    key: FactKey,
    fact: Fact,
    known: Option<Home>,
    policy: &Policy,
    app: &AppPolicy,
) -> (Outcome, Option<FactWrite>) {
    let mut outcome =
        Outcome { key, is_known: known.is_some(), home: None, touch_scans: Vec::new(), outgoing: None };
    let Some(known) = known else {
        let indexed = Indexed::new(key, &fact, policy, app);
        let home = new_home(fact);
        outcome.touch_scans = indexed.touch_scans;
        outcome.home = decidable(&home);
        return (outcome, Some(FactWrite { key, home, index: indexed.keys, stale: Vec::new() }));
    };
    let standing = to_fact(&known);
    let before = Indexed::new(key, &standing, policy, app);
    outcome.touch_scans = before.touch_scans;
    if canonical::compare(&fact, &standing, &app.key) != Ordering::Less {
        outcome.home = decidable(&known);
        return (outcome, None);
    }
    let after = Indexed::new(key, &fact, policy, app);
    outcome.touch_scans.extend(after.touch_scans);
    let stale = before.keys.into_iter().map(|key| (key, standing.time()));
    let stale = stale.filter(|(key, time)| *time != fact.time() || !after.keys.contains(key));
    let stale = stale.collect();
    let (home, outgoing) = replace(known, fact);
    outcome.outgoing = outgoing;
    outcome.home = decidable(&home);
    (outcome, Some(FactWrite { key, home, index: after.keys, stale }))
}

/// The keys of a fact, and, of a touch, where the activations stand that it can change.
struct Indexed {
    keys: Vec<MatchKey>,
    touch_scans: Vec<Scan>,
}

impl Indexed {
    fn new(key: FactKey, fact: &Fact, policy: &Policy, app: &AppPolicy) -> Self {
        match fact {
            Fact::Touch(touch) => {
                let ids = DeviceIds::new(&touch.ids);
                Self {
                    keys: matching::touch_index(touch, &ids, app.probabilistic),
                    touch_scans: touch_scans(&key, touch, &ids, policy, app),
                }
            }
            Fact::Activation(activation) => {
                let ids = DeviceIds::new(&activation.ids);
                let keys = matching::activation_index(activation, &ids, app.probabilistic);
                Self { keys, touch_scans: Vec::new() }
            }
            Fact::Effect(effect) => {
                let ids = DeviceIds::new(&effect.ids);
                Self { keys: ids.iter().map(matching::by_id).collect(), touch_scans: Vec::new() }
            }
        }
    }
}

fn new_home(fact: Fact) -> Home {
    match fact {
        Fact::Touch(touch) => Home::Touch(touch),
        Fact::Activation(fact) => {
            Home::Activation(ActivationHome { fact, decision: None, present: None })
        }
        Fact::Effect(fact) => Home::Effect(EffectHome { fact, present: None }),
    }
}

/// The home with another fact in it; its present row stays until the new decision.
fn replace(known: Home, fact: Fact) -> (Home, Option<Activation>) {
    match (known, fact) {
        (Home::Activation(home), Fact::Activation(fact)) => {
            let outgoing = Some(home.fact);
            let decision = home.decision;
            (Home::Activation(ActivationHome { fact, decision, present: home.present }), outgoing)
        }
        (Home::Effect(home), Fact::Effect(fact)) => {
            (Home::Effect(EffectHome { fact, present: home.present }), None)
        }
        (_, fact) => (new_home(fact), None),
    }
}

fn decidable(home: &Home) -> Option<Home> {
    (!matches!(home, Home::Touch(_))).then(|| home.clone())
}

fn to_fact(home: &Home) -> Fact {
    into_fact(home.clone())
}

fn into_fact(home: Home) -> Fact {
    match home {
        Home::Touch(touch) => Fact::Touch(touch),
        Home::Activation(home) => Fact::Activation(home.fact),
        Home::Effect(home) => Fact::Effect(home.fact),
    }
}
