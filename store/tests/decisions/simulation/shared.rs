//! Workers in one group, each on its own thread, which runs only when it has the turn.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use attribution::worker::Worker;
use attribution::worker::limits::ReadLimits;
use fastrand::Rng;

use super::broker::Broker;
use super::faulty_client::FaultyClient;
use super::invariants::{self, CheckResult};
use super::member::Poll;
use super::plan::Plan;
use super::scheduler::Scheduler;
use super::stats::{Stats, Trace};
use super::world::World;
use crate::support::cells::ledger;
use crate::threads::divided_among;

pub fn run(
    plan: &Plan,
    workers: usize,
    broker: Broker,
    rng: Rng,
    trace: Trace,
) -> (CheckResult, Stats, Trace) {
    let scheduler = Scheduler::new(World::new(plan, workers, broker, rng, trace));
    std::thread::scope(|scope| {
        for me in 0..workers {
            let scheduler = &scheduler;
            scope.spawn(move || {
                if let Err(panic) =
                    catch_unwind(AssertUnwindSafe(|| run_worker(scheduler, plan, me)))
                {
                    let text = panic.downcast_ref::<String>().map_or("", |text| text);
                    scheduler.end_run(Err(format!("a worker panicked: {text}")));
                }
            });
        }
    });
    let mut world = scheduler.into_world();
    let result = world.result.take().unwrap_or_else(|| Err("the run has no result".into()));
    let result = result.and_then(|()| check_final(plan, &world));
    world.stats.add("conflicting puts of facts", world.model.conflicts.facts as u64);
    world.stats.add("conflicting puts of decisions", world.model.conflicts.decisions as u64);
    (result, world.stats, world.trace)
}

fn check_final(plan: &Plan, world: &World<'_>) -> CheckResult {
    invariants::check_final_rows(plan, &world.model)?;
    invariants::check_callbacks(plan, &mut world.model.clone())?;
    if world.stats.count_of("crashes") + world.stats.count_of("responses lost") == 0 {
        world.counted.check(plan, &world.model)?;
    }
    Ok(())
}

/// Runs the processes of one worker, one after the other.
fn run_worker(scheduler: &Scheduler<'_>, plan: &Plan, me: usize) {
    drop(scheduler.first_turn(me));
    loop {
        scheduler.lock().start(me);
        let client = FaultyClient::new(scheduler, me);
        // Every second worker commits its decisions on effects one by one.
        let bytes = if me % 2 == 1 { 1_500 } else { ReadLimits::default().bytes };
        let limits = ReadLimits { bytes, ..ReadLimits::default() };
        let worker = Worker::with_limits(ledger(client), Arc::clone(&plan.policy), limits);
        // The third worker divides its batches among threads.
        let worker = worker.with_parallelism(divided_among(if me == 2 { 2 } else { 1 }));
        let mut worker = worker.with_interests(invariants::interests(&plan.policy));
        loop {
            let poll = scheduler.turn(me).poll(me);
            let batch = match poll {
                Poll::Batch(batch) => batch,
                Poll::Nothing => continue,
                Poll::Over => return scheduler.end_run(Ok(())),
            };
            let positions = batch.progress.positions.clone();
            let Ok(report) = worker.process(batch) else { break };
            if FaultyClient::new(scheduler, me).commit_positions(&positions).is_err() {
                break;
            }
            let result = scheduler.lock().finish_batch(me, &report);
            if result.is_err() {
                scheduler.end_run(result);
            }
        }
        let mut world = scheduler.lock();
        let is_over = world.result.is_some();
        world.on_crash(me);
        let is_gone = world.workers[me].is_gone;
        drop(world);
        if is_over {
            return scheduler.end_run(Ok(()));
        }
        if is_gone {
            return scheduler.leave();
        }
        drop(scheduler.turn(me));
    }
}
