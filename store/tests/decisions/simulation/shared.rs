//! Workers in one group, each on a thread of its own that runs only when it has the turn.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use attribution::worker::Worker;
use fastrand::Rng;

use super::broker::Broker;
use super::judge::{self, Verdict};
use super::member::Poll;
use super::plan::Plan;
use super::seat::Seat;
use super::table::Table;
use super::tally::{Tally, Trace};
use super::world::World;
use crate::support::cells::ledger;

pub fn run(
    plan: &Plan,
    workers: usize,
    broker: Broker,
    rng: Rng,
    trace: Trace,
) -> (Verdict, Tally, Trace) {
    let table = Table::new(World::new(plan, workers, broker, rng, trace));
    std::thread::scope(|scope| {
        for me in 0..workers {
            let table = &table;
            scope.spawn(move || {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| live(table, plan, me))) {
                    let text = panic.downcast_ref::<String>().map_or("", |text| text);
                    table.end(Err(format!("a worker panicked: {text}")));
                }
            });
        }
    });
    let mut world = table.into_world();
    let verdict = world.end.take().unwrap_or_else(|| Err("nobody ended it".into()));
    let verdict = verdict.and_then(|()| judge(plan, &world));
    world.tally.add("facts that came too late", world.model.late.facts as u64);
    world.tally.add("decisions that came too late", world.model.late.decisions as u64);
    (verdict, world.tally, world.trace)
}

fn judge(plan: &Plan, world: &World<'_>) -> Verdict {
    judge::judge(plan, &world.model)?;
    if world.tally.of("deaths") + world.tally.of("answers lost") == 0 {
        world.counted.judge(plan, &world.model)?;
    }
    Ok(())
}

/// The processes of one worker, one after the other.
fn live(table: &Table<'_>, plan: &Plan, me: usize) {
    drop(table.first_turn(me));
    loop {
        table.lock().start(me);
        let mut worker = Worker::new(ledger(Seat::new(table, me)), Arc::clone(&plan.policy));
        loop {
            let poll = table.turn(me).poll(me);
            let batch = match poll {
                Poll::Batch(batch) => batch,
                Poll::Nothing => continue,
                Poll::Over => return table.end(Ok(())),
            };
            let positions = batch.progress.positions.clone();
            let Ok(report) = worker.process(batch) else { break };
            if Seat::new(table, me).give(&positions).is_err() {
                break;
            }
            let verdict = table.lock().processed(me, &report);
            if verdict.is_err() {
                table.end(verdict);
            }
        }
        let mut world = table.lock();
        let is_over = world.end.is_some();
        world.died(me);
        let is_gone = world.hands[me].is_gone;
        drop(world);
        if is_over {
            return table.end(Ok(()));
        }
        if is_gone {
            return table.leave();
        }
        drop(table.turn(me));
    }
}
