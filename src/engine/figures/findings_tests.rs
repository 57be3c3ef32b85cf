//! Tests of what a reading of the core says.

use super::super::inside::Registered;
use super::*;
use crate::builder::Builder;
use crate::engine::shared::Core;
use crate::parts::slot::Word;
use crate::sync::Arc;

fn pool() -> Arc<Core> {
    let builder = Builder::new().max_workers(2).queue_capacity(2);
    builder.into_core().expect("a pool").0
}

fn at_rest() -> Reading {
    let core = pool();
    core.gate.wake(&mut core.registry().key);
    Reading {
        registry: Some(Registered {
            live: 2,
            starting: 0,
            retiring: 0,
            stopping: Vec::new(),
            limit: 2,
            withheld: Vec::new(),
            bench: Vec::new(),
        }),
        ready_entries: 2,
        idle_listed: 2,
        free_entries: 0,
        ..core.reading()
    }
}

fn slot(state: State, awake: bool, pays: Kinds) -> Inner {
    Inner {
        word: Word::in_state(state),
        taken: 0,
        awake,
        is_new: false,
        sleeps: false,
        is_ending_task: false,
        is_pinned: false,
        pays,
    }
}

fn says(change: impl FnOnce(&mut Reading)) -> String {
    let mut it = at_rest();
    change(&mut it);
    let mut all = of(&it);
    put_in_order(&mut all);
    format!("{all:?}")
}

#[test]
fn figures_that_do_not_add_up_are_found() {
    assert_eq!(says(|_| ()), "[]");
    assert_eq!(says(|it| it.permits_in_use = 2), "[wait: PermitsInHand(2)]");
    assert_eq!(says(|it| it.tasks = 1), "[wait: TasksWithoutPermit(1)]");
    assert_eq!(says(|it| it.awake = 1), "[aid: AwakeUnitsInHand(1)]");
    assert_eq!(says(|it| it.notified = 3), "[aid: NoticesInHand(3)]");
    assert_eq!(
        says(|it| it.ready_entries = 1),
        "[aid: ReadyEntriesInHand(1)]"
    );
    let searching = |it: &mut Reading| {
        _ = it
            .slots
            .insert(1, slot(State::Searching, true, Kinds::NONE));
    };
    assert_eq!(says(searching), "[aid: AwakeUnitsMissing(1)]");
    let distrusted = |it: &mut Reading| (it.awake, it.notified, it.trusts_counts) = (1, 1, false);
    assert_eq!(says(distrusted), "[]");
    let starting = |it: &mut Reading| {
        it.notified = 2;
        it.registry.as_mut().expect("figures").starting = 2;
    };
    let says_so = "[stack: WorkersBeyondLimit(2), wait: ThreadsStarting(2)]";
    assert_eq!(says(starting), says_so);
}

#[test]
fn a_queue_that_waits_is_found() {
    let queued = |it: &mut Reading, oldest| {
        (it.permits_in_use, it.cells_in_use, it.oldest_cell) = (1, 1, oldest);
    };
    let only = |oldest| says(|it| queued(it, oldest));
    assert_eq!(only(CellState::Full), "[aid: QueueNotLookedAt(1)]");
    assert_eq!(only(CellState::Held), "[wait: OldestCellHeld(1)]");
    assert_eq!(only(CellState::Empty), "[wait: OldestCellNotFilled(1)]");
    assert_eq!(only(CellState::Dead), "[aid: DeadCellsNotPassed(1)]");
    let looks = |it: &mut Reading| {
        queued(it, CellState::Full);
        it.slots.insert(1, slot(State::Paying, false, Kinds::NONE));
    };
    assert_eq!(says(looks), "[aid: LookNotDone(1)]");
    let drops = |it: &mut Reading| {
        queued(it, CellState::Full);
        let its = slot(State::Paying, false, Kinds::CAPTURES);
        it.slots.insert(1, its);
    };
    let both = r#"[code: UserCode(slot 1) {"values"}, aid: QueueNotLookedAt(1)]"#;
    assert_eq!(says(drops), both);
    let refused = |it: &mut Reading| {
        queued(it, CellState::Full);
        (it.idle_listed, it.free_entries, it.refused_at) = (0, 1, 1);
    };
    assert_eq!(says(refused), "[aid: ThreadsRefused(1)]");
    let long_ago = |it: &mut Reading| {
        refused(it);
        it.popped = 1;
    };
    assert_eq!(says(long_ago), "[aid: QueueNotLookedAt(1)]");
    let all_busy = |it: &mut Reading| {
        queued(it, CellState::Full);
        (it.idle_listed, it.tasks, it.permits_in_use) = (0, 2, 3);
    };
    assert_eq!(says(all_busy), "[]", "all workers are busy");
}

#[test]
fn a_worker_that_waits_is_found() {
    let with = |state, pays| says(|it| _ = it.slots.insert(1, slot(state, false, pays)));
    assert_eq!(with(State::Held, Kinds::NONE), "[wait: SlotHeld(slot 1)]");
    assert_eq!(
        with(State::Offered, Kinds::NONE),
        "[aid: OrderNotTaken(slot 1)]"
    );
    let changed = |state, change: fn(&mut Inner)| {
        let mut its = slot(state, false, Kinds::NONE);
        change(&mut its);
        says(|it| _ = it.slots.insert(1, its))
    };
    for state in [State::Busy, State::Retiring, State::Paying] {
        let asleep = changed(state, |its| its.sleeps = true);
        assert_eq!(asleep, "[aid: OrderNotTaken(slot 1)]");
    }
    let ending = changed(State::Idle, |its| its.is_ending_task = true);
    assert_eq!(ending, "[wait: EndNotDone(slot 1)]");
    let told = with(State::Retiring, Kinds::NONE);
    assert_eq!(told, "[aid: OrderNotTaken(slot 1)]");
    let calls = with(State::Calling, Kinds::CAPTURES);
    assert_eq!(calls, r#"[code: UserCode(slot 1) {"values"}]"#);
    let behind = with(State::Offered, Kinds::WAKERS);
    assert_eq!(behind, r#"[code: TaskBehindUserCode(slot 1) {"wakers"}]"#);
    let ends = with(State::Retiring, Kinds::END);
    assert_eq!(ends, r#"[stack: LockOrUserCode(slot 1) {"end"}]"#);
    let new = changed(State::Paying, |its| its.is_new = true);
    assert_eq!(new, "[code: StartHook(slot 1)]");
    assert_eq!(says(|it| it.registry = None), "[wait: RegistryLocked(1)]");
    assert_eq!(says(|it| it.passable = None), "[wait: LinesLocked(1)]");
    let in_line = says(|it| it.passable = Some(2));
    assert_eq!(in_line, "[aid: FreePermitsBesideLine(2)]");
    let lowered = |it: &mut Reading| it.registry.as_mut().expect("figures").limit = 1;
    assert_eq!(says(lowered), "[stack: WorkersBeyondLimit(1)]");
}

/// CONTRIBUTING.md has a row for each finding, which says the same as the finding itself.
#[test]
fn each_finding_is_described() {
    let text = include_str!("../../../CONTRIBUTING.md");
    let all = [
        What::UserCode,
        What::TaskBehindUserCode,
        What::LockOrUserCode,
        What::StartHook,
        What::StopHook,
        What::RegistryLocked,
        What::LinesLocked,
        What::WorkersBeyondLimit,
        What::ThreadsStarting,
        What::SlotHeld,
        What::OrderNotTaken,
        What::EndNotDone,
        What::OldestCellHeld,
        What::OldestCellNotFilled,
        What::DeadCellsNotPassed,
        What::QueueNotLookedAt,
        What::LookNotDone,
        What::ThreadsRefused,
        What::PermitsInHand,
        What::TasksWithoutPermit,
        What::AwakeUnitsInHand,
        What::AwakeUnitsMissing,
        What::NoticesInHand,
        What::NoticesMissing,
        What::ReadyEntriesInHand,
        What::FreePermitsBesideLine,
        What::AsleepBesideWorkers,
        What::ClosedAndNotOver,
    ];
    for what in all {
        let name = format!("`{what:?}`");
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let mut rows = rows.map(|row| row.split(" | "));
        let row = rows.find_map(|mut row| row.next()?.contains(&name).then_some(row));
        let now = row.and_then(|mut rest| rest.next());
        let now = now.unwrap_or_else(|| panic!("{name}: no row"));
        let advice = format!("{:?}", what.advice()).to_lowercase();
        assert_eq!(now.split([' ', ';', ',']).next(), Some(&*advice), "{name}");
    }
}
