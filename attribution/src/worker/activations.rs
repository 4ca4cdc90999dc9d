//! Decides activations: reads the facts of a whole batch of them page by page, and stops for
//! each as soon as its decision is settled.

use super::Desk;
use super::desk::{NEXT_PAGE, scan};
use super::settled::{Changed, Settled};
use crate::attribute::{self, Decision, Evidence};
use crate::candidate::{Subject, Tier, window_max_ms};
use crate::classify::{self, Class, Member};
use crate::compose;
use crate::event::{EventTime, Family, TouchKind};
use crate::ids::{self, DeviceIds};
use crate::ledger::{ActivationHome, FactKey, Home, IndexEntry, Ledger, Scan};
use crate::matching::{self, TouchClass};

/// An activation that is being decided.
struct Case {
    key: FactKey,
    home: Box<ActivationHome>,
    ids: DeviceIds,
    searches: Vec<Search>,
    members: Vec<Member>,
    evidence: Evidence,
}

/// One scan of the index, and how far it has come.
struct Search {
    scan: Scan,
    wanted: Wanted,
    found: Vec<IndexEntry>,
    is_read: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// Activations of the same device.
    Members,
    Touches(Tier),
}

impl<L: Ledger> Desk<'_, L> {
    /// Decides on all, and returns those whose effects can change.
    pub fn decide_activations(
        &mut self,
        keys: Vec<FactKey>,
        settled: &Settled,
    ) -> Result<Vec<Changed>, L::Error> {
        self.load(keys.iter().copied())?;
        let mut cases: Vec<Case> = keys.into_iter().filter_map(|key| self.case(key)).collect();
        let named: Vec<_> = cases.iter().filter_map(Case::named_click).collect();
        self.load(named)?;
        let mut changed = Vec::new();
        while !cases.is_empty() {
            self.read(&mut cases)?;
            let mut open = Vec::new();
            for mut case in cases {
                self.weigh(&mut case);
                match self.decision(&case) {
                    Some(decision) => changed.extend(self.settle_case(case, decision)),
                    None => open.push(case),
                }
            }
            cases = open;
        }
        // A replaced activation may show the same row and still be another fact to its effects.
        for (key, _) in &settled.outgoing_activations {
            if let Some(Home::Activation(home)) = self.home(key)
                && !changed.iter().any(|changed| changed.key == *key)
            {
                changed.push(Changed { key: *key, activation: home.fact.clone() });
            }
        }
        Ok(changed)
    }

    fn case(&self, key: FactKey) -> Option<Case> {
        let Home::Activation(home) = self.home(&key)? else { return None };
        let ids = DeviceIds::new(&home.fact.ids);
        let mut case = Case {
            key,
            home: home.clone(),
            ids,
            searches: Vec::new(),
            members: Vec::new(),
            evidence: Evidence::default(),
        };
        case.searches = self.searches(&case)?;
        Some(case)
    }

    fn searches(&self, case: &Case) -> Option<Vec<Search>> {
        let app = self.app(&case.key)?;
        let time = case.home.fact.time;
        let search = |family, found_by, times, wanted| Search {
            scan: scan(&case.key, family, found_by, times),
            wanted,
            found: Vec::new(),
            is_read: false,
        };
        let mut searches: Vec<_> = case
            .ids
            .iter()
            .map(|id| {
                let times = (EventTime::default(), time);
                search(Family::Activation, matching::by_id(id), times, Wanted::Members)
            })
            .collect();
        for class in TouchClass::ALL {
            let mut seek = |found_by, is_probabilistic| {
                let tier = Tier::of(class.kind, is_probabilistic);
                let oldest = time.minus(window_max_ms(self.policy, app, tier));
                let extra_ms =
                    if app.fraud.clicks_per_device_max > 0 && class.kind == TouchKind::Click {
                        crate::candidate::CLICK_COUNT_MS
                    } else {
                        0
                    };
                if time.millis() > 0 {
                    let times = (oldest.minus(extra_ms), time.minus(1));
                    searches.push(search(Family::Touch, found_by, times, Wanted::Touches(tier)));
                }
            };
            for id in case.ids.iter() {
                seek(matching::touch_by_id(class, id), false);
            }
            if app.probabilistic {
                for key in matching::probabilistic_keys(&case.home.fact.device) {
                    seek(matching::touch_by_place(class, key), true);
                }
            }
        }
        Some(searches)
    }

    /// Reads the next page of every search that is not at its end.
    fn read(&mut self, cases: &mut [Case]) -> Result<(), L::Error> {
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

    /// Turns what was read into members and evidence.
    fn weigh(&self, case: &mut Case) {
        case.evidence.unread = attribute::Unread::default();
        for search in &mut case.searches {
            for entry in std::mem::take(&mut search.found) {
                match self.at(&entry) {
                    Some(Home::Activation(home)) => case.members.extend(member(home, &case.ids)),
                    Some(Home::Touch(touch)) => {
                        let ids = DeviceIds::new(&touch.ids);
                        case.evidence.touches.push((touch.as_ref().clone(), ids));
                    }
                    _ => {}
                }
            }
            if let (Wanted::Touches(tier), false, Some(last)) =
                (search.wanted, search.is_read, search.scan.after)
            {
                case.evidence.unread.up_to(tier, last.time);
            }
        }
        if let Some(Home::Touch(touch)) = case.named_click().and_then(|key| self.home(&key)) {
            case.evidence.touches.push((touch.as_ref().clone(), DeviceIds::new(&touch.ids)));
        }
        case.members.push(Member { time: case.home.fact.time, id: case.home.fact.id.clone() });
        case.members.sort_unstable();
        case.members.dedup();
        case.evidence.touches.sort_unstable_by(|(a, _), (b, _)| a.id.cmp(&b.id));
        case.evidence.touches.dedup_by(|(a, _), (b, _)| a.id == b.id);
    }

    /// The decision, if no fact that was not read could change it.
    fn decision(&self, case: &Case) -> Option<Decision> {
        let app = self.app(&case.key)?;
        let last = case.members.iter().position(|member| *member.id == *case.home.fact.id)?;
        let members = case.members.get(..=last)?;
        let is_whole =
            case.searches.iter().all(|search| search.wanted != Wanted::Members || search.is_read);
        if !is_whole && !self.settles(case, members) {
            return None;
        }
        let class: Class = classify::classify(app, members);
        let subject =
            Subject { policy: self.policy, app, activation: &case.home.fact, ids: &case.ids };
        attribute::without_touches(&subject, &class)
            .or_else(|| attribute::attribute(&subject, &class, &case.evidence))
    }

    /// Whether the members that were read so far, down to the last that all searches have
    /// reached, settle the class.
    fn settles(&self, case: &Case, members: &[Member]) -> bool {
        let reached = case
            .searches
            .iter()
            .filter(|search| search.wanted == Wanted::Members && !search.is_read)
            .filter_map(|search| search.scan.after.map(|entry| entry.time))
            .max();
        let known = members.partition_point(|member| Some(member.time) <= reached);
        self.app(&case.key).is_some_and(|app| classify::is_settled(app, &members[known..]))
    }

    fn settle_case(&mut self, case: Case, decision: Decision) -> Option<Changed> {
        let row = compose::activation_row(&case.home.fact, &decision);
        let mut home = case.home;
        home.decision = Some(decision);
        let activation = home.fact.clone();
        let is_new = self.decide(case.key, Home::Activation(home), row);
        // Another worker may have written this very decision and not its effects yet, and stopped.
        (is_new || L::SHARED).then_some(Changed { key: case.key, activation })
    }
}

impl Case {
    /// Where the touch lives that the activation names by its click id.
    fn named_click(&self) -> Option<FactKey> {
        let click_id = ids::click_id(&self.home.fact.click_id)?;
        Some(matching::fact_key(Family::Touch, self.key.pid, click_id))
    }
}

fn member(home: &ActivationHome, ids: &DeviceIds) -> Option<Member> {
    DeviceIds::new(&home.fact.ids).shared(ids)?;
    Some(Member { time: home.fact.time, id: home.fact.id.clone() })
}
