//! Pending decisions on activations: the touches read so far, and the searches for more.
//!
//! Touches are read newest first, page by page, for many activations at once, until no unread touch can change the
//! decisions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fact_cache::{FactCache, PAGE};
use super::touch_search::{
    TouchSearch, id_searches, marker_scans, marker_times, probabilistic_search, read_pages,
};
use crate::facts::device_ids::{self, DeviceIds};
use crate::facts::event::{EventTime, SpreadId, Touch, TouchKind};
use crate::facts::keys::{FactKey, FactKeyMap, MatchKey};
use crate::facts::match_keys::{ProbabilisticClass, fact_key};
use crate::ledger::Facts;
use crate::rules::candidate::{CountedClick, Subject};
use crate::rules::classify::Class;
use crate::rules::policy::{AppPolicy, Policy};
use crate::rules::winner::{self, Decision, Evidence};

/// `read_newest` continues one in this many open searches at a time: those that have reached least far back.
const OPEN_SEARCHES_PER_READ: usize = 8;
/// Maximum number of probabilistic searches of a decision that is read together with others.
const PROBABILISTIC_SEARCHES_MAX: usize = 32;
/// Total size of the first pages of a decision's probabilistic searches; each reads at least one entry.
const PROBABILISTIC_FIRST_READ: usize = 256;

/// The pending decision on an activation.
pub struct PendingDecision<'p> {
    policy: &'p Policy,
    app: &'p AppPolicy,
    pub key: FactKey,
    pub class: Class,
    pub has_new_chains: bool,
    pub ids: Arc<DeviceIds>,
    /// The decision, if it does not depend on touches.
    pub without_touches: Option<Decision>,
    searches: Vec<TouchSearch>,
    /// The touches read so far that can still be credited, with their ids.
    pub touches: BTreeMap<FactKey, DeviceIds>,
    /// The clicks read so far that can no longer be credited, but count against others.
    pub counted: FactKeyMap<CountedClick<'p>>,
    /// The number of touches read so far.
    pub read: usize,
}

impl<'p> PendingDecision<'p> {
    /// Returns `None` if the activation is not loaded or its app is not configured.
    pub fn new<L: Facts>(
        facts: &FactCache<'_, L>,
        policy: &'p Policy,
        key: FactKey,
        class: Class,
        has_new_chains: bool,
    ) -> Option<Self> {
        let ids = DeviceIds::of_app_event(&facts.activation(&key)?.fact.ids);
        Self::with_ids(facts, policy, key, class, has_new_chains, Arc::new(ids))
    }

    /// [`PendingDecision::new`] with the normalised ids of the activation.
    pub fn with_ids<L: Facts>(
        facts: &FactCache<'_, L>,
        policy: &'p Policy,
        key: FactKey,
        class: Class,
        has_new_chains: bool,
        ids: Arc<DeviceIds>,
    ) -> Option<Self> {
        let (activation, app) = (&facts.activation(&key)?.fact, policy.app(key.pid)?);
        let subject = Subject { policy, app, activation, ids: &ids };
        let without_touches = winner::without_touches(&subject, &class);
        let searches = match without_touches {
            Some(_) => Vec::new(),
            None => id_searches(&subject, &class, &facts.received_md5(key.pid)),
        };
        let (touches, counted) = (BTreeMap::new(), FactKeyMap::default());
        Some(Self {
            policy,
            app,
            key,
            class,
            has_new_chains,
            ids,
            without_touches,
            searches,
            touches,
            counted,
            read: 0,
        })
    }

    pub fn subject<'a, L: Facts>(&'a self, facts: &'a FactCache<'_, L>) -> Option<Subject<'a>> {
        let activation = &facts.activation(&self.key)?.fact;
        Some(Subject { policy: self.policy, app: self.app, activation, ids: &self.ids })
    }

    /// Returns the touches read so far that are loaded.
    pub fn loaded_touches<'a, L: Facts>(
        &'a self,
        facts: &'a FactCache<'_, L>,
    ) -> impl Iterator<Item = (FactKey, &'a Touch, &'a DeviceIds)> {
        self.touches.iter().filter_map(|(key, ids)| Some((*key, facts.touch(key)?, ids)))
    }

    pub fn evidence<'a, L: Facts>(&'a self, facts: &'a FactCache<'_, L>) -> Evidence<'a> {
        let touches = self.loaded_touches(facts).map(|(_, touch, ids)| (touch, ids)).collect();
        let counted = self.counted.values().copied().collect();
        let mut evidence = Evidence { touches, counted, ..Evidence::default() };
        for search in &self.searches {
            search.add_unread(&mut evidence);
        }
        evidence
    }

    /// Returns the channel of a campaign of the app.
    pub fn channel(&self, spreadid: SpreadId) -> Option<&'p str> {
        self.policy.campaign(self.app.pid, spreadid).map(|campaign| &*campaign.channel)
    }

    /// Returns the decision if no unread touch can change it.
    pub fn decision<L: Facts>(&self, facts: &FactCache<'_, L>) -> Option<Decision> {
        self.without_touches.clone().or_else(|| {
            winner::attribute(&self.subject(facts)?, &self.class, &self.evidence(facts))
        })
    }

    /// Returns the latest possible time of an unread touch.
    pub fn newest_unread(&self) -> Option<EventTime> {
        self.searches.iter().filter_map(TouchSearch::unread).max()
    }

    /// Checks whether everything has been read, including clicks that only count.
    pub fn is_read(&self) -> bool {
        self.searches.iter().all(TouchSearch::is_complete)
    }

    /// Adds a loaded touch.
    pub fn add_touch<L: Facts>(&mut self, facts: &FactCache<'_, L>, key: FactKey) {
        // A counted click was found again by another id.
        if let Some(touch) = facts.touch(&key).filter(|_| !self.counted.contains_key(&key)) {
            self.touches.entry(key).or_insert_with(|| DeviceIds::of_touch(touch.ids()));
        }
    }

    /// Adds the touches of the last pages, and those with the activation's click id.
    fn add_found<L: Facts>(&mut self, facts: &FactCache<'_, L>) {
        let found = self.searches.iter_mut().flat_map(|search| std::mem::take(&mut search.found));
        let found: Vec<_> =
            found.filter(|entry| facts.at(entry).is_some()).map(|entry| entry.fact).collect();
        self.read += found.len();
        for key in found.into_iter().chain(self.touches_by_click_id(facts)) {
            self.add_touch(facts, key);
        }
    }

    /// Returns the keys of the click and the impression with the activation's click id.
    fn touches_by_click_id<L: Facts>(&self, facts: &FactCache<'_, L>) -> Vec<FactKey> {
        let activation = facts.activation(&self.key).map(|record| &record.fact);
        let click_id = activation.and_then(|it| device_ids::click_id(&it.click_id));
        let keys = |click_id| TouchKind::ALL.map(|kind| fact_key(kind, self.key.pid, click_id));
        click_id.map(keys).into_iter().flatten().collect()
    }

    /// If all searches have reached their end, extends them to older clicks that only count.
    fn extend_lookback(&mut self) {
        if self.searches.iter().all(|search| search.is_read) {
            self.searches.iter_mut().for_each(TouchSearch::extend_lookback);
        }
    }

    fn open_searches(&mut self) -> impl Iterator<Item = &mut TouchSearch> {
        self.searches.iter_mut().filter(|search| !search.is_read)
    }
}

/// Prepares the searches of several decisions. Returns the decisions to read together, and those that must be read
/// alone: they have many probabilistic searches, or the touches with the click ids are too large to load all of them.
pub fn start_reading<'p, L: Facts>(
    facts: &mut FactCache<'_, L>,
    mut pending_decisions: Vec<PendingDecision<'p>>,
) -> Result<[Vec<PendingDecision<'p>>; 2], L::Error> {
    let by_click_id: Vec<_> =
        pending_decisions.iter().flat_map(|pending| pending.touches_by_click_id(facts)).collect();
    let mut alone = Vec::new();
    if !facts.load_up_to(by_click_id)? {
        (pending_decisions, alone) = pending_decisions.into_iter().partition(|pending| {
            pending.touches_by_click_id(facts).iter().all(|key| facts.is_loaded(key))
        });
    }
    let crowded =
        add_probabilistic_searches(facts, &mut pending_decisions, PROBABILISTIC_SEARCHES_MAX)?;
    let mut together = Vec::with_capacity(pending_decisions.len());
    for (index, pending) in pending_decisions.into_iter().enumerate() {
        if crowded.contains(&index) { &mut alone } else { &mut together }.push(pending);
    }
    Ok([together, alone])
}

/// Prepares the searches of one decision that is read alone.
pub fn start_reading_alone<L: Facts>(
    facts: &mut FactCache<'_, L>,
    pending: &mut PendingDecision<'_>,
) -> Result<(), L::Error> {
    add_probabilistic_searches(facts, std::slice::from_mut(pending), usize::MAX)?;
    facts.load(pending.touches_by_click_id(facts))
}

/// Adds to each decision the probabilistic searches for those touches in the markers that can match. Decisions with
/// more than `searches_max` of them get none; their indexes are returned.
fn add_probabilistic_searches<L: Facts>(
    facts: &mut FactCache<'_, L>,
    pending_decisions: &mut [PendingDecision<'_>],
    searches_max: usize,
) -> Result<BTreeSet<usize>, L::Error> {
    let mut scans = Vec::new();
    let mut owners = Vec::new();
    for (index, pending) in pending_decisions.iter().enumerate() {
        let subject = pending.subject(facts).filter(|_| pending.without_touches.is_none());
        let Some(subject) = subject else { continue };
        for (key, scan) in marker_scans(&subject, marker_times(&subject)) {
            scans.push(scan);
            owners.push((index, key, pending.ids.kinds()));
        }
    }
    let mut found: BTreeMap<usize, BTreeSet<(MatchKey, ProbabilisticClass)>> = BTreeMap::new();
    let mut crowded = BTreeSet::new();
    facts.scan_all(&scans, |scan, entry| {
        let Some((index, key, kinds)) = owners.get(scan) else { return };
        let marked = ProbabilisticClass::of_marker(&entry);
        if marked.kinds.overlaps(*kinds) || crowded.contains(index) {
            return;
        }
        let classes = found.entry(*index).or_default();
        classes.insert((*key, marked));
        if classes.len() > searches_max {
            found.remove(index);
            crowded.insert(*index);
        }
    })?;
    for (index, classes) in found {
        let pending = &mut pending_decisions[index];
        let Some(subject) = pending.subject(facts) else { continue };
        let mut searches: Vec<_> = classes
            .into_iter()
            .filter_map(|(key, marked)| probabilistic_search(&subject, &pending.class, key, marked))
            .collect();
        let limit = PROBABILISTIC_FIRST_READ / searches.len().max(1);
        searches.iter_mut().for_each(|search| search.scan.limit = limit.clamp(1, PAGE));
        pending.searches.extend(searches);
    }
    Ok(crowded)
}

/// Reads the next page of every open search. If all searches of a decision have reached their end, extends them first.
pub fn read_touches<L: Facts>(
    facts: &mut FactCache<'_, L>,
    pending_decisions: &mut [PendingDecision<'_>],
) -> Result<(), L::Error> {
    pending_decisions.iter_mut().for_each(PendingDecision::extend_lookback);
    let open = pending_decisions.iter_mut().flat_map(PendingDecision::open_searches);
    read_pages(facts, open.collect())?;
    pending_decisions.iter_mut().for_each(|pending| pending.add_found(facts));
    Ok(())
}

/// Reads the next page of the searches that have reached least far back. So all searches of a decision reach about
/// equally far back, however dense their touches are, and clicks that count need not be kept until a slow search
/// catches up.
pub fn read_newest<L: Facts>(
    facts: &mut FactCache<'_, L>,
    pending: &mut PendingDecision<'_>,
) -> Result<(), L::Error> {
    pending.extend_lookback();
    let mut open: Vec<_> = pending.open_searches().collect();
    let mut reached: Vec<_> = open.iter().map(|search| Reverse(search.reached())).collect();
    if !reached.is_empty() {
        let last = reached.len().div_ceil(OPEN_SEARCHES_PER_READ) - 1;
        let (_, Reverse(threshold), _) = reached.select_nth_unstable(last);
        open.retain(|search| search.reached() >= *threshold);
    }
    read_pages(facts, open)?;
    pending.add_found(facts);
    Ok(())
}

/// Reloads the touches that were dropped after the decision was last evaluated.
pub fn reload<L: Facts>(
    facts: &mut FactCache<'_, L>,
    pending: &PendingDecision<'_>,
) -> Result<(), L::Error> {
    let by_click_id = pending.touches_by_click_id(facts);
    facts.load(pending.touches.keys().copied().chain(by_click_id))
}
