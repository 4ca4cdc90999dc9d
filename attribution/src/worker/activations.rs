//! Decides activations: reads the touches of a whole batch of them page by page, and stops for
//! each as soon as its decision is settled.

use std::collections::HashSet;

use foldhash::fast::FixedState;

use super::Desk;
use super::classes::Classified;
use super::desk::{NEXT_PAGE, scan};
use super::settled::Settled;
use crate::attribute::{self, Decision, Evidence};
use crate::candidate::{CLICK_COUNT_MS, Subject, Tier, window_max_ms};
use crate::classify::Class;
use crate::event::{Activation, EventTime, Family, TouchKind};
use crate::ids::{self, DeviceIds};
use crate::ledger::{FactKey, Home, IndexEntry, Ledger, Scan};
use crate::matching::{self, MatchKey, TouchClass};
use crate::policy::AppPolicy;

/// An activation that is being decided.
struct Case {
    key: FactKey,
    class: Class,
    has_new_walks: bool,
    ids: DeviceIds,
    searches: Vec<Search>,
    evidence: Evidence,
}

/// One scan of the index of touches, and how far it has come.
struct Search {
    scan: Scan,
    tier: Tier,
    found: Vec<IndexEntry>,
    is_read: bool,
}

impl<L: Ledger> Desk<'_, L> {
    /// Decides on the batch's activations, on those whose class is another now and on those that
    /// a touch can change. Returns those whose effects can change.
    pub fn decide_activations(
        &mut self,
        settled: &Settled,
        classified: &[Classified],
        touched: Vec<FactKey>,
    ) -> Result<HashSet<FactKey, FixedState>, L::Error> {
        let mut open = self.cases(settled, classified, touched);
        let named: Vec<_> = open.iter().filter_map(|case| self.named_click(case)).collect();
        self.load(named)?;
        let mut changed: HashSet<FactKey, FixedState> = HashSet::default();
        while !open.is_empty() {
            self.read_touches(&mut open)?;
            let mut rest = Vec::new();
            for mut case in open {
                self.weigh(&mut case);
                let Some(decision) = self.decision(&case) else {
                    rest.push(case);
                    continue;
                };
                // Another worker may have written this very decision and not its effects yet.
                if self.decide_activation(case.key, decision, case.has_new_walks) || L::SHARED {
                    changed.insert(case.key);
                }
            }
            open = rest;
        }
        // A replaced activation may show the same row and still be another fact to its effects.
        changed.extend(settled.outgoing_activations.iter().map(|(key, _)| *key));
        Ok(changed)
    }

    fn cases(
        &mut self,
        settled: &Settled,
        classified: &[Classified],
        touched: Vec<FactKey>,
    ) -> Vec<Case> {
        let arrived: HashSet<&FactKey, FixedState> = settled.activations.iter().collect();
        let touched: HashSet<FactKey, FixedState> = touched.into_iter().collect();
        let mut cases = Vec::with_capacity(classified.len() + touched.len());
        let mut walked: HashSet<FactKey, FixedState> = HashSet::default();
        for Classified { key, class, has_new_walks } in classified {
            walked.insert(*key);
            let is_open = arrived.contains(key)
                || touched.contains(key)
                || self.class(key).as_ref() != Some(class);
            if is_open {
                cases.extend(self.case(*key, class.clone(), *has_new_walks));
            } else if let (true, Some(decision)) = (*has_new_walks, self.decision_on(key)) {
                self.decide_activation(*key, decision.clone(), true);
            }
        }
        let unwalked = touched.into_iter().filter(|key| !walked.contains(key));
        cases.extend(unwalked.filter_map(|key| self.case(key, self.class(&key)?, false)));
        cases
    }

    fn decision_on(&self, key: &FactKey) -> Option<&Decision> {
        match self.home(key)? {
            Home::Activation(home) => home.decision.as_ref(),
            _ => None,
        }
    }

    /// As it was decided last.
    fn class(&self, key: &FactKey) -> Option<Class> {
        let Decision { install_type, original, .. } = self.decision_on(key)?;
        Some(Class { install_type: *install_type, original: original.clone() })
    }

    fn case(&self, key: FactKey, class: Class, has_new_walks: bool) -> Option<Case> {
        let (activation, app) = (self.activation(&key)?, self.app(&key)?);
        let ids = DeviceIds::new(&activation.ids);
        let subject = Subject { policy: self.policy, app, activation, ids: &ids };
        let searches = match attribute::without_touches(&subject, &class) {
            Some(_) => Vec::new(),
            None => searches(&subject),
        };
        let evidence = Evidence::default();
        Some(Case { key, class, has_new_walks, ids, searches, evidence })
    }

    /// Reads the next page of every search that is not at its end.
    fn read_touches(&mut self, cases: &mut [Case]) -> Result<(), L::Error> {
        let mut open: Vec<&mut Search> = cases
            .iter_mut()
            .flat_map(|case| &mut case.searches)
            .filter(|search| !search.is_read)
            .collect();
        let scans: Vec<Scan> = open.iter().map(|search| search.scan).collect();
        let pages = self.ledger().scan(&scans)?;
        let mut facts = Vec::new();
        for (search, page) in open.iter_mut().zip(pages) {
            search.is_read = page.len() < search.scan.limit;
            search.scan.after = page.last().copied().or(search.scan.after);
            search.scan.limit = NEXT_PAGE;
            facts.extend(page.iter().map(|entry| entry.fact));
            search.found = page;
        }
        self.load(facts)
    }

    /// Turns what was read into evidence.
    fn weigh(&self, case: &mut Case) {
        let Case { searches, evidence, .. } = case;
        evidence.unread = attribute::Unread::default();
        for search in searches {
            for entry in std::mem::take(&mut search.found) {
                if let Some(Home::Touch(touch)) = self.at(&entry) {
                    let ids = DeviceIds::new(&touch.ids);
                    evidence.touches.push((touch.as_ref().clone(), ids));
                }
            }
            if let (false, Some(last)) = (search.is_read, search.scan.after) {
                evidence.unread.up_to(search.tier, last.time);
            }
        }
        let named = self.named_click(case).and_then(|key| self.home(&key));
        if let Some(Home::Touch(touch)) = named {
            let ids = DeviceIds::new(&touch.ids);
            case.evidence.touches.push((touch.as_ref().clone(), ids));
        }
        case.evidence.touches.sort_unstable_by(|(a, _), (b, _)| a.id.cmp(&b.id));
        case.evidence.touches.dedup_by(|(a, _), (b, _)| a.id == b.id);
    }

    /// The decision, if no touch that was not read could change it.
    fn decision(&self, case: &Case) -> Option<Decision> {
        let (activation, app) = (self.activation(&case.key)?, self.app(&case.key)?);
        let subject = Subject { policy: self.policy, app, activation, ids: &case.ids };
        attribute::without_touches(&subject, &case.class)
            .or_else(|| attribute::attribute(&subject, &case.class, &case.evidence))
    }

    /// Where the touch lives that the activation names by its click id.
    fn named_click(&self, case: &Case) -> Option<FactKey> {
        let click_id = ids::click_id(&self.activation(&case.key)?.click_id)?;
        Some(matching::fact_key(Family::Touch, case.key.pid, click_id))
    }

    /// A loaded activation.
    pub fn activation(&self, key: &FactKey) -> Option<&Activation> {
        match self.home(key)? {
            Home::Activation(home) => Some(&home.fact),
            _ => None,
        }
    }
}

fn searches(subject: &Subject<'_>) -> Vec<Search> {
    let Subject { activation, app, .. } = subject;
    let mut searches = Vec::new();
    if activation.time == EventTime::default() {
        return searches;
    }
    let mut add = |class: TouchClass, key: MatchKey, is_probabilistic| {
        let tier = Tier::of(class.kind, is_probabilistic);
        let window_ms = window_max_ms(subject.policy, app, tier);
        let oldest = activation.time.minus(window_ms.saturating_add(counted_ms(app, class)));
        let times = (oldest, activation.time.minus(1));
        let scan = scan(activation.pid, Family::Touch, key, times);
        searches.push(Search { scan, tier, found: Vec::new(), is_read: false });
    };
    for class in TouchClass::ALL {
        for id in subject.ids.iter() {
            add(class, matching::touch_by_id(class, id), false);
        }
        if app.probabilistic {
            for key in matching::probabilistic_keys(&activation.device) {
                add(class, matching::touch_by_place(class, key), true);
            }
        }
    }
    searches
}

/// How much older than a candidate the clicks are that count against it.
fn counted_ms(app: &AppPolicy, class: TouchClass) -> u64 {
    let counts = app.fraud.clicks_per_device_max > 0 && class.kind == TouchKind::Click;
    if counts { CLICK_COUNT_MS } else { 0 }
}
