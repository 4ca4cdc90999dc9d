//! Runs one worker at a time, so that everything that happens is a function of the seed.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::invariants::CheckResult;
use super::world::World;

/// Passes the turn between the threads of the workers.
pub struct Scheduler<'p> {
    world: Mutex<World<'p>>,
    /// Signals each worker that it has the turn.
    turns: Vec<Condvar>,
}

impl<'p> Scheduler<'p> {
    pub fn new(world: World<'p>) -> Self {
        let turns = world.workers.iter().map(|_| Condvar::new()).collect();
        Self { world: Mutex::new(world), turns }
    }

    /// Passes the turn on and waits for the next one, or for the end of the run.
    pub fn turn(&self, me: usize) -> MutexGuard<'_, World<'p>> {
        let mut world = self.lock();
        world.pass_turn();
        self.wait(me, world)
    }

    /// Waits for the first turn.
    pub fn first_turn(&self, me: usize) -> MutexGuard<'_, World<'p>> {
        self.wait(me, self.lock())
    }

    /// Passes the turn on for the last time.
    pub fn leave(&self) {
        let mut world = self.lock();
        world.pass_turn();
        self.turns[world.turn].notify_one();
    }

    fn wait<'t>(
        &'t self,
        me: usize,
        mut world: MutexGuard<'t, World<'p>>,
    ) -> MutexGuard<'t, World<'p>> {
        while world.turn != me && world.result.is_none() {
            self.turns[world.turn].notify_one();
            world = self.turns[me].wait(world).unwrap_or_else(PoisonError::into_inner);
        }
        if world.result.is_some() {
            self.turns.iter().for_each(Condvar::notify_one);
        }
        world
    }

    pub fn lock(&self) -> MutexGuard<'_, World<'p>> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the run, unless it has ended.
    pub fn end_run(&self, result: CheckResult) {
        self.lock().finish(result);
        self.turns.iter().for_each(Condvar::notify_one);
    }

    pub fn into_world(self) -> World<'p> {
        self.world.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
