//! Only whoever has the turn runs: all that happens is a function of the seed.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::judge::Verdict;
use super::world::World;

/// Where the workers sit.
pub struct Table<'p> {
    world: Mutex<World<'p>>,
    /// One for each worker.
    turns: Vec<Condvar>,
}

impl<'p> Table<'p> {
    pub fn new(world: World<'p>) -> Self {
        let turns = world.hands.iter().map(|_| Condvar::new()).collect();
        Self { world: Mutex::new(world), turns }
    }

    /// Gives the turn away and waits until it is back, or all is over.
    pub fn turn(&self, me: usize) -> MutexGuard<'_, World<'p>> {
        let mut world = self.lock();
        world.pass();
        self.wait(me, world)
    }

    /// Waits for the first turn.
    pub fn first_turn(&self, me: usize) -> MutexGuard<'_, World<'p>> {
        self.wait(me, self.lock())
    }

    /// Gives the turn away for good.
    pub fn leave(&self) {
        let mut world = self.lock();
        world.pass();
        self.turns[world.turn].notify_one();
    }

    fn wait<'t>(
        &'t self,
        me: usize,
        mut world: MutexGuard<'t, World<'p>>,
    ) -> MutexGuard<'t, World<'p>> {
        while world.turn != me && world.end.is_none() {
            self.turns[world.turn].notify_one();
            world = self.turns[me].wait(world).unwrap_or_else(PoisonError::into_inner);
        }
        if world.end.is_some() {
            self.turns.iter().for_each(Condvar::notify_one);
        }
        world
    }

    pub fn lock(&self) -> MutexGuard<'_, World<'p>> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it all, unless it has ended.
    pub fn end(&self, verdict: Verdict) {
        self.lock().finish(verdict);
        self.turns.iter().for_each(Condvar::notify_one);
    }

    pub fn into_world(self) -> World<'p> {
        self.world.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
