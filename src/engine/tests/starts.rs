//! Tests of the starts of threads, of who is surplus, and of a submission that comes too late to a shutdown.

use super::first_aid::occupy;
use super::*;

/// Law 5: a task waits in the queue for a worker that was told to look there. No thread is started for it.
#[test]
fn law05_no_thread_is_started_beside_a_worker_that_was_told_to_look() {
    let core = &pool(Builder::new().max_workers(2).queue_capacity(2));
    let open = occupy(core);
    // As if another worker had just been told.
    let notice = core.in_flight.notify();
    let (done, ran) = mpsc::channel();
    assert!(serves(core, move || done.send(()).expect("it waits")));
    let stats = core.stats();
    assert_eq!((stats.spawned, stats.queued), (1, 1));
    core.in_flight.forgo(notice);
    let mut owed = Owed::default();
    owed.look();
    core.pay(&mut owed);
    assert_eq!(ran.recv_timeout(Duration::from_secs(30)), Ok(()));
    drop(open);
    end(core);
}

/// Law 10: a submission that took its permit before a shutdown, and pushes its task after the shutdown has looked
/// through the queue, discards that task itself.
#[test]
fn law10_a_task_that_is_pushed_late_is_discarded() {
    let core = &pool(Builder::new().max_workers(1).queue_capacity(2));
    let open = occupy(core);
    let (task, permit) = accepted(core, || unreachable!("it is discarded"));
    let flags = core.gate.flags();
    core.env.close(Shutdown::Discard);
    core.gate.close();
    let (mut task, mut owed) = (task, Owed::default());
    let accepted = Accepted {
        permit,
        flags,
        nested: false,
        stamp: 0,
    };
    assert!(core.place(accepted, &mut task, &mut owed).is_ok());
    core.pay(&mut owed);
    let stats = core.stats();
    assert_eq!((stats.discarded, stats.queued), (1, 0));
    drop(open);
    end(core);
}

/// Law 4: as many workers are told to end as are surplus, also while those that were told have not ended.
#[test]
fn law04_as_many_workers_end_as_are_surplus() {
    let core = &pool(Builder::new().max_workers(4).idle_timeout(Duration::MAX));
    assert!((0..4).all(|_| core.start_worker().is_ok()));
    core.await_idle();
    core.set_limit(3);
    let registry = core.host.registry.lock();
    // Those that have ended since, and those that are about to.
    assert_eq!(4 - registry.live + registry.retiring, 1);
    drop(registry);
    end(core);
}

/// Law 4: no worker is surplus for one that is being started, because the OS may refuse its thread.
#[test]
fn law04_no_worker_is_surplus_for_one_that_is_being_started() {
    let core = &pool(Builder::new().max_workers(2).idle_timeout(Duration::MAX));
    assert!((0..2).all(|_| core.start_worker().is_ok()));
    let mut registry = core.host.registry.lock();
    registry.starting += 1;
    assert!(!core.is_surplus(&registry, registry.retiring));
    registry.starting -= 1;
    drop(registry);
    end(core);
}
