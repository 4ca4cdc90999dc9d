//! Classifies the activations that a batch can give another class.
//!
//! Every activation keeps the walks that end with it, one per device id, so the next of the
//! device goes on from the last, however many there were. Only where the ids of one activation
//! lead to different sets must their walks be made one: from the oldest that is not in the
//! largest set on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use foldhash::fast::FixedState;

use super::BatchContext;
use super::batch_state::BatchState;
use super::device_history::{ListKey, Peer, Peers};
use crate::facts::device_ids::DeviceId;
use crate::facts::keys::FactKey;
use crate::ledger::Facts;
use crate::rules::classify::{Class, Member, Walk, Walks};
use crate::rules::policy::AppPolicy;

/// An activation and its class.
pub struct Classified {
    pub key: FactKey,
    pub class: Class,
    /// Whether later activations of the device go on from elsewhere than before.
    pub has_new_walks: bool,
}

/// Why an activation can not be classified yet.
#[derive(Default)]
struct Blocked {
    /// Lists to read on.
    lists: Vec<ListKey>,
    /// Peers that another worker recorded and has not decided on.
    undecided: Vec<FactKey>,
}

/// The last activation before another one with one of its ids, and the number of that id's walk.
type Source = (FactKey, u8);

impl<L: Facts> BatchContext<'_, L> {
    /// The batch's activations, and all that follow one of them or one that it replaced on a
    /// device, in the order of time.
    pub fn classify(&mut self, state: &BatchState) -> Result<Vec<Classified>, L::Error> {
        let mut arrived = state.activations.clone();
        loop {
            let mut peers = Peers::default();
            let open = self.walkers(&mut peers, &arrived, state)?;
            let (classified, undecided) = self.walk_all(&mut peers, open)?;
            if undecided.is_empty() {
                return Ok(classified);
            }
            arrived.extend(undecided);
        }
    }

    /// These activations alone, each from the walks that are kept of those before it.
    pub fn classify_alone(&mut self, keys: &[FactKey]) -> Result<Vec<Classified>, L::Error> {
        let mut wanted = keys.to_vec();
        loop {
            let mut peers = Peers::default();
            self.load(wanted.iter().copied())?;
            let open = self.in_order(&mut peers, wanted.iter().copied().collect());
            self.read_peers(&mut peers)?;
            let (classified, undecided) = self.walk_all(&mut peers, open)?;
            if undecided.is_empty() {
                return Ok(classified);
            }
            wanted.extend(undecided);
        }
    }

    /// The walk up to one activation as it stands, without it; `None` where it is the first of its
    /// devices.
    pub fn walk_before(&mut self, key: FactKey) -> Result<Option<Walk>, L::Error> {
        let mut peers = Peers::default();
        self.load([key])?;
        if let Some(activation) = self.activation(&key) {
            peers.precede(&key, activation);
        }
        loop {
            self.read_peers(&mut peers)?;
            let Some(walker) = self.walker(key, &peers) else { return Ok(None) };
            let blocked = match self.walk_up_to(&walker) {
                Ok((before, _)) => return Ok(before),
                Err(blocked) => blocked,
            };
            if blocked.lists.is_empty() {
                return Ok(None);
            }
            blocked.lists.iter().for_each(|list| peers.want(list));
        }
    }

    /// Whom to walk to, oldest first.
    fn walkers(
        &mut self,
        peers: &mut Peers,
        arrived: &[FactKey],
        state: &BatchState,
    ) -> Result<Vec<FactKey>, L::Error> {
        self.load(arrived.iter().copied())?;
        for key in arrived {
            if let Some(activation) = self.activation(key) {
                peers.follow(key, activation);
            }
        }
        for (key, activation) in &state.outgoing_activations {
            peers.follow(key, activation);
        }
        self.read_peers(peers)?;
        let followers = peers.followers().filter(|key| {
            self.activation(key).is_some_and(|follower| self.is_changeable(key, follower.time))
        });
        let walkers = followers.chain(arrived.iter().copied()).collect();
        let walkers = self.in_order(peers, walkers);
        self.read_peers(peers)?;
        Ok(walkers)
    }

    /// Loaded activations, oldest first; asks for those before each.
    fn in_order(&self, peers: &mut Peers, keys: BTreeSet<FactKey>) -> Vec<FactKey> {
        let mut walkers: Vec<(Member, FactKey)> = Vec::new();
        for key in keys {
            let Some(activation) = self.activation(&key) else { continue };
            peers.precede(&key, activation);
            walkers.push((Member::of(activation), key));
        }
        walkers.sort_unstable();
        walkers.into_iter().map(|(_, key)| key).collect()
    }

    fn walk_all(
        &mut self,
        peers: &mut Peers,
        mut open: Vec<FactKey>,
    ) -> Result<(Vec<Classified>, BTreeSet<FactKey>), L::Error> {
        let mut classified = Vec::with_capacity(open.len());
        let mut undecided = BTreeSet::new();
        while !open.is_empty() && undecided.is_empty() {
            let mut waiting: HashSet<FactKey, FixedState> = HashSet::default();
            for key in &open {
                let Some(mut walker) = self.walker(*key, peers) else { continue };
                walker.waiting = Some(&waiting);
                match self.walk_to(&walker) {
                    Ok((class, walks)) => {
                        let has_new_walks = self.keep_walks(key, walks);
                        classified.push(Classified { key: *key, class, has_new_walks });
                    }
                    Err(blocked) => {
                        waiting.insert(*key);
                        blocked.lists.iter().for_each(|list| peers.want(list));
                        undecided.extend(blocked.undecided);
                    }
                }
            }
            open.retain(|key| waiting.contains(key));
            self.read_peers(peers)?;
        }
        Ok((classified, undecided))
    }

    /// The class of one activation and the walks that end with it.
    fn walk_to(&self, walker: &Walker<'_>) -> Result<(Class, Walks), Blocked> {
        let (before, sources) = self.walk_up_to(walker)?;
        Ok((walker.step(before.as_ref()).1, self.walks(walker, &sources)?))
    }

    /// The walk over all with an id of the walker, without it.
    fn walk_up_to(
        &self,
        walker: &Walker<'_>,
    ) -> Result<(Option<Walk>, Vec<Option<Source>>), Blocked> {
        let sources = self.sources(walker)?;
        let mut distinct: Vec<(Source, &DeviceId)> = Vec::new();
        for (source, id) in sources.iter().zip(walker.ids()) {
            if let Some(source) = source
                && !distinct.iter().any(|(known, _)| known == source)
            {
                distinct.push((*source, id));
            }
        }
        let before = match distinct.as_slice() {
            [] => None,
            [(source, id)] => Some(self.walk_of(walker, &source.0, id)?.clone()),
            _ => self.walk_among(walker, &distinct)?,
        };
        Ok((before, sources))
    }

    fn walker<'p>(&'p self, key: FactKey, peers: &'p Peers) -> Option<Walker<'p>> {
        let (app, activation) = (self.app(&key)?, self.activation(&key)?);
        Some(Walker { app, member: Member::of(activation), key, peers, waiting: None })
    }

    /// Per id of the walker, who comes just before it.
    fn sources(&self, walker: &Walker<'_>) -> Result<Vec<Option<Source>>, Blocked> {
        let mut sources = Vec::new();
        let mut blocked = Blocked::default();
        for id in walker.ids() {
            match walker.last_before(id, &walker.member) {
                Ok(None) => sources.push(None),
                Ok(Some(peer)) => match self.number_of(walker, &peer.key, id) {
                    Ok(number) => sources.push(Some((peer.key, number))),
                    Err(other) => blocked.add(other),
                },
                Err(other) => blocked.add(other),
            }
        }
        let is_blocked = sources.len() < walker.ids().count();
        if is_blocked { Err(blocked) } else { Ok(sources) }
    }

    /// Each id's walk, one step further.
    fn walks(&self, walker: &Walker<'_>, sources: &[Option<Source>]) -> Result<Walks, Blocked> {
        let mut walks = Walks::default();
        let mut numbers: BTreeMap<Option<Source>, u8> = BTreeMap::new();
        for (source, id) in sources.iter().zip(walker.ids()) {
            let next = u8::try_from(walks.walks.len()).unwrap_or(u8::MAX);
            let number = *numbers.entry(*source).or_insert(next);
            if number == next {
                let before = match source {
                    Some((peer, _)) => Some(self.walk_of(walker, peer, id)?),
                    None => None,
                };
                walks.walks.push(walker.step(before).0);
            }
            walks.places.push(number);
        }
        if walks.walks.len() < 2 {
            walks.places.clear();
        }
        Ok(walks)
    }

    /// The walk over several ids' activations together.
    fn walk_among(
        &self,
        walker: &Walker<'_>,
        distinct: &[(Source, &DeviceId)],
    ) -> Result<Option<Walk>, Blocked> {
        let mut mains: Vec<&DeviceId> = distinct.iter().map(|(_, id)| *id).collect();
        // The id of most activations is the likeliest to be that of all.
        mains.sort_by_key(|id| Reverse(walker.older(id, &walker.member).known.len()));
        let mut blocked = Blocked::default();
        for main in mains {
            match self.walk_along(walker, main, distinct) {
                Ok(walk) => return Ok(walk),
                Err(other) => blocked.add(other),
            }
        }
        Err(blocked)
    }

    /// The same, walking along the activations with the main id.
    fn walk_along(
        &self,
        walker: &Walker<'_>,
        main: &DeviceId,
        distinct: &[(Source, &DeviceId)],
    ) -> Result<Option<Walk>, Blocked> {
        let mut set: Vec<&Peer> = Vec::new();
        for (_, id) in distinct.iter().filter(|(_, id)| *id != main) {
            self.add_strangers(walker, main, id, &mut set)?;
        }
        let start = set.iter().map(|stranger| &stranger.member).min().cloned();
        let start = start.unwrap_or_else(|| walker.member.clone());
        let mut walk = match walker.last_before(main, &start)? {
            Some(peer) => Some(self.walk_of(walker, &peer.key, main)?.clone()),
            None => None,
        };
        let along = walker.older(main, &walker.member).known;
        set.extend(along.iter().take_while(|peer| peer.member > start));
        set.sort_unstable();
        set.dedup();
        for peer in set {
            walk = Some(Walk::step(walk.as_ref(), walker.app, peer.member.clone()).0);
        }
        Ok(walk)
    }

    /// Adds those with an id who lack the main one.
    fn add_strangers<'p>(
        &self,
        walker: &Walker<'p>,
        main: &DeviceId,
        id: &DeviceId,
        strangers: &mut Vec<&'p Peer>,
    ) -> Result<(), Blocked> {
        let older = walker.older(id, &walker.member);
        for peer in older.known {
            if !walker.peers.ids(&peer.key).is_some_and(|ids| ids.contains(main)) {
                strangers.push(peer);
            } else if self.number_of(walker, &peer.key, main)?
                == self.number_of(walker, &peer.key, id)?
            {
                // From here back both ids lead to the same activations.
                return Ok(());
            }
        }
        if older.is_whole { Ok(()) } else { Err(walker.unread(id)) }
    }

    fn walk_of(
        &self,
        walker: &Walker<'_>,
        peer: &FactKey,
        id: &DeviceId,
    ) -> Result<&Walk, Blocked> {
        self.numbered_walk(walker, peer, id).map(|(_, walk)| walk)
    }

    fn number_of(&self, walker: &Walker<'_>, peer: &FactKey, id: &DeviceId) -> Result<u8, Blocked> {
        self.numbered_walk(walker, peer, id).map(|(number, _)| number)
    }

    fn numbered_walk(
        &self,
        walker: &Walker<'_>,
        peer: &FactKey,
        id: &DeviceId,
    ) -> Result<(u8, &Walk), Blocked> {
        if walker.waiting.is_some_and(|waiting| waiting.contains(peer)) {
            return Err(Blocked::default());
        }
        self.walk_at(walker.peers, peer, id)
            .ok_or_else(|| Blocked { undecided: vec![*peer], ..Blocked::default() })
    }
}

/// An activation that is being classified.
struct Walker<'a> {
    app: &'a AppPolicy,
    member: Member,
    key: FactKey,
    peers: &'a Peers,
    /// Those who are blocked themselves.
    waiting: Option<&'a HashSet<FactKey, FixedState>>,
}

impl<'a> Walker<'a> {
    fn ids(&self) -> impl Iterator<Item = &'a DeviceId> {
        self.peers.ids(&self.key).into_iter().flat_map(|ids| ids.iter())
    }

    fn step(&self, before: Option<&Walk>) -> (Walk, Class) {
        Walk::step(before, self.app, self.member.clone())
    }

    fn older(&self, id: &DeviceId, than: &Member) -> super::device_history::Older<'a> {
        match self.peers.list(self.key.pid, id) {
            Some(list) => list.before(than),
            None => super::device_history::Older { known: &[], is_whole: true },
        }
    }

    fn last_before(&self, id: &DeviceId, than: &Member) -> Result<Option<&'a Peer>, Blocked> {
        let older = self.older(id, than);
        match older.known.first() {
            None if !older.is_whole => Err(self.unread(id)),
            last => Ok(last),
        }
    }

    fn unread(&self, id: &DeviceId) -> Blocked {
        Blocked { lists: vec![(self.key.pid, id.clone())], ..Blocked::default() }
    }
}

impl Blocked {
    fn add(&mut self, other: Self) {
        self.lists.extend(other.lists);
        self.undecided.extend(other.undecided);
    }
}
