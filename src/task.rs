//! For the code inside a task: whether anybody still waits for it, how long, and
//! what it is called. Outside a worker these functions say `false` or `None`.

// A `Task` is 56 bytes: the address of a table of functions and 48 bytes that hold
// the job itself where it fits (alignment up to 8), else a box of it. With an
// 8-byte word before it, it fills one cache line of a slot or a queue cell.
//
// A worker has one `Ctx` on its stack for life; a thread-local pointer to it is
// what the public functions read.

use crate::members::{Ended, Pending};
use crate::observe;
#[cfg(any(feature = "metrics", feature = "tracing"))]
use crate::observe::{Observed, Seen, Watch};
use crate::shared::Shared;
use crate::sync::{catch_unwind, thread_local, Arc, AtomicBool, AtomicU64, Ordering};
use crate::wait::{deadline_of, WaiterHead};
use std::any::Any;
use std::cell::Cell;
use std::mem::{align_of, size_of, ManuallyDrop, MaybeUninit};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

/// A caught panic's payload.
pub(crate) type Payload = Box<dyn Any + Send + 'static>;

/// Bytes of a job that travel without a box.
pub(crate) const INLINE: usize = 48;

/// Drops a value, containing a panic of its `Drop` and of its payload's.
/// Returns whether there was one.
pub(crate) fn drop_contained<T>(value: T) -> bool {
    match catch_unwind(AssertUnwindSafe(|| drop(value))) {
        Ok(()) => false,
        Err(payload) => {
            drop_payload(payload);
            true
        }
    }
}

/// Drops a panic's payload, whose own `Drop` may panic with another payload,
/// and so on: after a few of those the last one is leaked.
pub(crate) fn drop_payload(mut payload: Payload) {
    for _ in 0..8 {
        match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    std::mem::forget(payload);
}

/// The worker's part of a task's end, to be called once, with whether the task
/// panicked: frees the worker and counts the task. Whoever waits for the task is
/// to be released after it.
pub(crate) type End<'a> = &'a mut dyn FnMut(bool);

/// Whom a discarded task sets free, after it has been counted.
#[derive(Debug)]
#[must_use]
pub(crate) enum Release {
    Nobody,
    /// A caller of `do_with_deadline`, whose outcome has been written.
    Caller(*const WaiterHead),
    Group(Pending),
}

impl Release {
    pub(crate) fn finish(self) {
        match self {
            Self::Nobody => {}
            // SAFETY: made by the task of that caller, after the outcome was
            // written, and consumed here.
            Self::Caller(head) => unsafe { WaiterHead::release(head) },
            Self::Group(pending) => pending.end(Ended::Discarded),
        }
    }
}

/// A unit of work before its type is erased.
pub(crate) trait Job: Sized {
    /// Runs it, calls `end`, and releases who waits for it. Never unwinds:
    /// whatever user code panics is contained.
    fn run(self, ctx: &Ctx<'_>, end: End<'_>);
    /// Disposes of it unrun, for a shutdown or a cancelled group. Never unwinds.
    fn discard(self) -> Release;
    /// The group it belongs to, by address.
    fn group(&self) -> *const () {
        std::ptr::null()
    }
    /// A scope's task, which no shutdown discards.
    const KEEP: bool = false;
    /// A caller waits for it, and may take it back before it starts.
    const AWAITED: bool = false;
    /// May be taken out of the queue again, by its caller or its group.
    const WITHDRAWABLE: bool = Self::AWAITED;
}

type Bytes = MaybeUninit<[u64; INLINE / 8]>;

struct Table {
    keep: bool,
    awaited: bool,
    withdrawable: bool,
    /// # Safety
    /// The bytes hold a live job of the table's type.
    group: unsafe fn(&Bytes) -> *const (),
    /// # Safety
    /// As `group`; the job is consumed.
    run: unsafe fn(&mut Bytes, &Ctx<'_>, End<'_>),
    /// # Safety
    /// As `run`.
    discard: unsafe fn(&mut Bytes) -> Release,
}

/// A job with its type erased. It is consumed by `run`, `discard` or
/// `into_job`; dropping it would leak the job.
pub(crate) struct Task {
    table: &'static Table,
    bytes: Bytes,
}

// SAFETY: made only by `Task::new`, whose caller vouches that the job may move
// to another thread.
unsafe impl Send for Task {}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").finish_non_exhaustive()
    }
}

struct TableOf<J>(std::marker::PhantomData<J>);

impl<J: Job> TableOf<J> {
    const FITS: bool = size_of::<J>() <= INLINE && align_of::<J>() <= align_of::<Bytes>();
    const TABLE: Table = Table {
        keep: J::KEEP,
        awaited: J::AWAITED,
        withdrawable: J::WITHDRAWABLE,
        group: Self::group,
        run: Self::run,
        discard: Self::discard,
    };

    fn store(job: J) -> Bytes {
        let mut bytes = Bytes::uninit();
        if Self::FITS {
            // SAFETY: the job fits in size and alignment (`FITS`).
            unsafe { bytes.as_mut_ptr().cast::<J>().write(job) }
        } else {
            let boxed = Box::into_raw(Box::new(job));
            // SAFETY: a thin pointer (J is Sized) fits.
            unsafe { bytes.as_mut_ptr().cast::<*mut J>().write(boxed) }
        }
        bytes
    }

    /// # Safety
    /// The bytes were made by `store` of the same type, and hold a live job.
    unsafe fn load(bytes: &Bytes) -> *mut J {
        if Self::FITS {
            bytes.as_ptr().cast::<J>().cast_mut()
        } else {
            // SAFETY: `store` wrote the box's pointer there.
            unsafe { bytes.as_ptr().cast::<*mut J>().read() }
        }
    }

    /// # Safety
    /// As `load`; the job is moved out.
    unsafe fn take(bytes: &Bytes) -> J {
        // SAFETY: as `load`; the caller never uses the bytes again.
        let job = unsafe { Self::load(bytes) };
        if Self::FITS {
            // SAFETY: live, and moved out once.
            unsafe { job.read() }
        } else {
            // SAFETY: `store` made it with `Box::into_raw`, taken once.
            *unsafe { Box::from_raw(job) }
        }
    }

    /// # Safety
    /// See `Table::group`.
    unsafe fn group(bytes: &Bytes) -> *const () {
        // SAFETY: live, by this function's contract; only read.
        unsafe { (*Self::load(bytes)).group() }
    }

    /// # Safety
    /// See `Table::run`.
    unsafe fn run(bytes: &mut Bytes, ctx: &Ctx<'_>, end: End<'_>) {
        // SAFETY: by this function's contract.
        unsafe { Self::take(bytes) }.run(ctx, end);
    }

    /// # Safety
    /// See `Table::discard`.
    unsafe fn discard(bytes: &mut Bytes) -> Release {
        // SAFETY: by this function's contract.
        unsafe { Self::take(bytes) }.discard()
    }
}

impl Task {
    /// Erases a job.
    ///
    /// # Safety
    /// The job may be sent to another thread, and lives until it has run or
    /// been discarded there: the caller either has `J: Send + 'static`, or
    /// waits for the task's end before anything the job borrows goes away.
    #[inline]
    pub(crate) unsafe fn new<J: Job>(job: J) -> Self {
        #[cfg(any(feature = "metrics", feature = "tracing"))]
        let job = Observed::new(job);
        Self::erase(job)
    }

    /// A job taken out of its task again, as a task that does not run.
    ///
    /// # Safety
    /// As [`Task::new`].
    pub(crate) unsafe fn renew<J: Job>(job: J) -> Self {
        #[cfg(any(feature = "metrics", feature = "tracing"))]
        let job = Observed::unseen(job);
        Self::erase(job)
    }

    #[inline]
    fn erase<J: Job>(job: J) -> Self {
        Self {
            table: &TableOf::<J>::TABLE,
            bytes: TableOf::<J>::store(job),
        }
    }

    /// The job again, for a submitter whose task was not accepted.
    ///
    /// # Safety
    /// The task was made from a `J`.
    #[inline]
    pub(crate) unsafe fn into_job<J: Job>(self) -> J {
        let this = ManuallyDrop::new(self);
        #[cfg(any(feature = "metrics", feature = "tracing"))]
        // SAFETY: as below.
        return unsafe { TableOf::<Observed<J>>::take(&this.bytes) }.into_job();
        #[cfg(not(any(feature = "metrics", feature = "tracing")))]
        // SAFETY: of type J by this function's contract; `this` is not dropped.
        unsafe {
            TableOf::<J>::take(&this.bytes)
        }
    }

    /// The address of the task's group; null if it has none.
    pub(crate) fn group(&self) -> *const () {
        // SAFETY: a `Task` holds a live job until it is consumed.
        unsafe { (self.table.group)(&self.bytes) }
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.table.keep
    }

    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        self.table.awaited
    }

    #[inline]
    pub(crate) fn is_withdrawable(&self) -> bool {
        self.table.withdrawable
    }

    /// Runs the task where it is.
    #[inline]
    pub(crate) fn run_in(place: &mut Option<Self>, ctx: &Ctx<'_>, end: End<'_>) {
        if let Some(task) = place {
            // SAFETY: consumed once: the place is this function's alone until it is
            // empty, and `Job::run` never unwinds.
            unsafe { (task.table.run)(&mut task.bytes, ctx, end) };
            *place = None;
        }
    }

    /// Disposes of the job unrun, containing panics.
    pub(crate) fn discard(self) -> Release {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: consumed once: `this` is not dropped.
        unsafe { (this.table.discard)(&mut this.bytes) }
    }
}

/// What a task can ask of the worker that runs it. Lives on the worker's stack.
pub(crate) struct Ctx<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) slot: usize,
    label: Cell<Option<&'static str>>,
    /// The block of the running task's caller, if it has a deadline.
    caller: Cell<Option<*const WaiterHead>>,
    /// The decision word's value while the caller of the running task waits;
    /// zero for a task without one.
    waited: Cell<u64>,
    /// The cancel flag of the running task's group; valid while it runs.
    group: Cell<*const AtomicBool>,
    /// Names the task about to run on the decision word; see `wait.rs`.
    pub(crate) ticket: Cell<u64>,
    /// The worker runs its start or stop hook.
    pub(crate) in_hook: Cell<bool>,
    /// The worker has taken the task about to run from the queue, and has yet to
    /// look whether somebody looks after the others there.
    pub(crate) owes_a_look: Cell<bool>,
    /// The submission of the task about to run.
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    pub(crate) seen: Cell<Seen>,
}

impl std::fmt::Debug for Ctx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ctx")
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}

thread_local! {
    static CURRENT: Cell<*const Ctx<'static>> = const { Cell::new(std::ptr::null()) };
}

/// Calls `f` with the context of the worker that this thread is, if it is one.
pub(crate) fn with_current<R>(f: impl FnOnce(Option<&Ctx<'_>>) -> R) -> R {
    let current = CURRENT.try_with(Cell::get).unwrap_or(std::ptr::null());
    // SAFETY: not null only between `Ctx::enter` and its guard's drop, both on
    // this thread, during which the context is borrowed; `f` cannot keep it.
    f(unsafe { current.as_ref() })
}

/// Clears the thread's context when the worker's stack unwinds or returns.
#[derive(Debug)]
pub(crate) struct Entered<'a>(std::marker::PhantomData<&'a ()>);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.with(|c| c.set(std::ptr::null()));
    }
}

impl<'a> Ctx<'a> {
    pub(crate) fn new(shared: &'a Arc<Shared>, slot: usize) -> Self {
        Self {
            shared,
            slot,
            label: Cell::new(None),
            caller: Cell::new(None),
            waited: Cell::new(0),
            group: Cell::new(std::ptr::null()),
            ticket: Cell::new(0),
            in_hook: Cell::new(false),
            owes_a_look: Cell::new(false),
            #[cfg(any(feature = "metrics", feature = "tracing"))]
            seen: Cell::default(),
        }
    }

    /// Makes this the thread's context until the guard drops.
    pub(crate) fn enter(&self) -> Entered<'_> {
        CURRENT.with(|c| c.set(std::ptr::from_ref(self).cast()));
        Entered(std::marker::PhantomData)
    }

    /// Runs `f` as a task with a label.
    pub(crate) fn with_label<R>(&self, label: Option<&'static str>, f: impl FnOnce() -> R) -> R {
        let Some(label) = label else { return f() };
        self.label.set(Some(label));
        self.own().label.set(Some(label));
        let result = f();
        self.own().label.set(None);
        self.label.set(None);
        result
    }

    /// Runs `f` as a task whose caller waits, with a decision word; and with the
    /// caller's block, if there is a deadline.
    pub(crate) fn with_caller<R>(
        &self,
        running: u64,
        caller: Option<*const WaiterHead>,
        f: impl FnOnce() -> R,
    ) -> R {
        self.waited.set(running);
        self.caller.set(caller);
        let result = f();
        self.caller.set(None);
        self.waited.set(0);
        result
    }

    fn deadline(&self) -> Option<Instant> {
        let after = deadline_of(self.own(), self.ticket.get(), self.caller.get()?)?;
        Some(self.shared.epoch + Duration::from_nanos(after))
    }

    /// Runs `f` as a task of a group with the given cancel flag.
    pub(crate) fn with_group<R>(&self, cancelled: &AtomicBool, f: impl FnOnce() -> R) -> R {
        self.group.set(cancelled);
        let result = f();
        self.group.set(std::ptr::null());
        result
    }

    #[cfg(any(feature = "metrics", feature = "tracing"))]
    pub(crate) fn label(&self) -> Option<&'static str> {
        self.label.get()
    }

    pub(crate) fn own(&self) -> &crate::slot::Own {
        &self.shared.slots[self.slot].own
    }

    fn decide(&self) -> &AtomicU64 {
        &self.own().decide
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        let waited = self.waited.get();
        // Relaxed: a flag; whoever acts on it needs nothing it publishes.
        if waited != 0 && self.decide().load(Ordering::Relaxed) != waited {
            return true;
        }
        let group = self.group.get();
        // SAFETY: set by `with_group`, which borrows the flag while `f` runs.
        if !group.is_null() && unsafe { &*group }.load(Ordering::Relaxed) {
            return true;
        }
        self.shared.is_cancelling()
    }

    /// Calls user code: within the wrapper if there is one, panics caught and
    /// reported to `on_panic`. What the code captured is dropped on return.
    #[inline]
    pub(crate) fn call<R>(&self, f: impl FnOnce() -> R) -> Result<R, Payload> {
        if self.owes_a_look.take() {
            // A burst spreads: one seeker less, so call the next. Not sooner: that
            // may start a thread, and this task's caller can leave only now.
            self.shared.wake_for_queue();
        }
        #[cfg(any(feature = "metrics", feature = "tracing"))]
        let watch = Watch::begin(self);
        let result = match &self.shared.hooks.around {
            None => catch_unwind(AssertUnwindSafe(f)),
            Some(_) => self.call_around(f),
        };
        #[cfg(any(feature = "metrics", feature = "tracing"))]
        watch.stop(self);
        if let Err(payload) = &result {
            self.report(payload);
        }
        #[cfg(any(feature = "metrics", feature = "tracing"))]
        watch.end(self);
        result
    }

    #[cold]
    fn call_around<R>(&self, f: impl FnOnce() -> R) -> Result<R, Payload> {
        let mut f = Some(f);
        let mut result = None;
        let mut step = || {
            if let Some(f) = f.take() {
                result = Some(catch_unwind(AssertUnwindSafe(f)));
            }
        };
        if let Some(around) = &self.shared.hooks.around {
            self.shared.hook(|| around(&mut step));
        }
        // A wrapper that did not call its argument: the task runs all the same.
        step();
        result.expect("the step has run")
    }

    /// Tells `on_panic` of a payload.
    #[cold]
    pub(crate) fn report(&self, payload: &Payload) {
        let panic = crate::error::TaskPanic::new(self.slot, self.label.get(), &**payload);
        observe::task_panicked(self.shared, &panic);
        if let Some(on_panic) = &self.shared.hooks.on_panic {
            self.shared.hook(|| on_panic(&panic));
        }
    }

    /// Drops a value that nobody waits for any more; a panic of its `Drop` is
    /// reported. Returns whether there was one.
    pub(crate) fn drop_reported<T>(&self, value: T) -> bool {
        match catch_unwind(AssertUnwindSafe(|| drop(value))) {
            Ok(()) => false,
            Err(payload) => {
                self.report(&payload);
                drop_payload(payload);
                true
            }
        }
    }
}

/// `Pool::serve`'s task.
pub(crate) struct Serve<F> {
    pub(crate) f: F,
}

impl<F: FnOnce()> Job for Serve<F> {
    #[inline]
    fn run(self, ctx: &Ctx<'_>, end: End<'_>) {
        end(has_panicked(ctx.call(self.f)));
    }

    fn discard(self) -> Release {
        drop_contained(self);
        Release::Nobody
    }
}

/// `View::serve`'s task.
pub(crate) struct Labelled<F> {
    pub(crate) label: &'static str,
    pub(crate) f: F,
}

impl<F: FnOnce()> Job for Labelled<F> {
    fn run(self, ctx: &Ctx<'_>, end: End<'_>) {
        end(ctx.with_label(Some(self.label), || has_panicked(ctx.call(self.f))));
    }

    fn discard(self) -> Release {
        drop_contained(self);
        Release::Nobody
    }
}

#[inline]
pub(crate) fn has_panicked(result: Result<(), Payload>) -> bool {
    match result {
        Ok(()) => false,
        Err(payload) => {
            drop_payload(payload);
            true
        }
    }
}

/// Whether the caller of this task left at its deadline, or its group or pool
/// was cancelled. `false` outside a worker.
///
/// Long tasks look at it now and then and return early.
///
/// ```
/// use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = lazypool::Pool::new(1)?;
/// let left = pool.do_with_deadline(
///     || {
///         while !lazypool::task::is_cancelled() {
///             std::thread::yield_now();
///         }
///     },
///     Duration::from_millis(5),
/// );
/// // `Expired` where the system took longer than that to start the worker.
/// use lazypool::DeadlineError::{Expired, TimedOut};
/// assert!(matches!(left, Err(TimedOut | Expired(_))));
/// assert!(!lazypool::task::is_cancelled());
/// # Ok(()) }
/// ```
#[must_use]
pub fn is_cancelled() -> bool {
    with_current(|ctx| ctx.is_some_and(Ctx::is_cancelled))
}

/// When the caller of this task leaves; `None` under `serve`, for a deadline of
/// [`Duration::MAX`] and outside a worker.
///
/// ```
/// use std::time::{Duration, Instant};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = lazypool::Pool::new(1)?;
/// let at = pool.do_with_deadline(lazypool::task::deadline, Duration::from_secs(60));
/// assert!(at?.unwrap() > Instant::now());
/// # Ok(()) }
/// ```
#[must_use]
pub fn deadline() -> Option<Instant> {
    with_current(|ctx| ctx?.deadline())
}

/// How long the caller of this task still waits (zero once it has left); `None`
/// where [`deadline`] is.
///
/// ```
/// use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = lazypool::Pool::new(1)?;
/// let left = pool.do_with_deadline(lazypool::task::remaining, Duration::from_secs(60));
/// assert!(left?.unwrap() <= Duration::from_secs(60));
/// # Ok(()) }
/// ```
#[must_use]
pub fn remaining() -> Option<Duration> {
    deadline().map(|d| d.saturating_duration_since(Instant::now()))
}

/// The label this task was submitted with; see
/// [`Pool::labelled`](crate::Pool::labelled).
///
/// ```
/// # use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = lazypool::Pool::new(1)?;
/// let label = pool.labelled("parse").do_with_deadline(lazypool::task::label, Duration::MAX);
/// assert_eq!(label?, Some("parse"));
/// # Ok(()) }
/// ```
#[must_use]
pub fn label() -> Option<&'static str> {
    with_current(|ctx| ctx.and_then(|c| c.label.get()))
}

/// The slot of the worker that this thread is, below
/// [`max_workers`](crate::Pool::max_workers); `None` outside a worker.
///
/// ```
/// # use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = lazypool::Pool::new(1)?;
/// let slot = pool.do_with_deadline(lazypool::task::slot, Duration::MAX);
/// assert_eq!(slot?, Some(0));
/// assert_eq!(lazypool::task::slot(), None);
/// # Ok(()) }
/// ```
#[must_use]
pub fn slot() -> Option<usize> {
    with_current(|ctx| ctx.map(|c| c.slot))
}

#[cfg(not(lazypool_loom))]
const _: () = assert!(size_of::<Task>() == 56);

#[cfg(all(test, not(lazypool_loom)))]
pub(crate) mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// How often each of some tasks was dropped.
    pub(crate) struct Marks(Arc<Vec<AtomicUsize>>);

    impl Marks {
        pub(crate) fn new(tasks: usize) -> Self {
            Self(Arc::new((0..tasks).map(|_| AtomicUsize::new(0)).collect()))
        }

        pub(crate) fn dropped(&self) -> Vec<usize> {
            self.0.iter().map(|n| n.load(Ordering::SeqCst)).collect()
        }
    }

    struct Mark {
        marks: Arc<Vec<AtomicUsize>>,
        id: usize,
        group: *const (),
    }

    impl Drop for Mark {
        fn drop(&mut self) {
            self.marks[self.id].fetch_add(1, Ordering::SeqCst);
        }
    }

    struct Marked<const WITHDRAWABLE: bool>(Mark);

    impl<const WITHDRAWABLE: bool> Job for Marked<WITHDRAWABLE> {
        const WITHDRAWABLE: bool = WITHDRAWABLE;

        fn run(self, _: &Ctx<'_>, _: End<'_>) {
            unreachable!("these tests do not run tasks")
        }

        fn discard(self) -> Release {
            drop_contained(self.0);
            Release::Nobody
        }

        fn group(&self) -> *const () {
            self.0.group
        }
    }

    fn mark(marks: &Marks, id: usize, group: *const ()) -> Mark {
        let marks = Arc::clone(&marks.0);
        Mark { marks, id, group }
    }

    /// A task that counts its drop.
    pub(crate) fn marked(marks: &Marks, id: usize, withdrawable: bool) -> Task {
        let mark = mark(marks, id, std::ptr::null());
        // SAFETY: the jobs are 'static, and may be sent: the address is only one.
        unsafe {
            if withdrawable {
                Task::new(Marked::<true>(mark))
            } else {
                Task::new(Marked::<false>(mark))
            }
        }
    }

    /// The same, of a group.
    pub(crate) fn marked_of(marks: &Marks, id: usize, group: *const ()) -> Task {
        // SAFETY: as in `marked`.
        unsafe { Task::new(Marked::<true>(mark(marks, id, group))) }
    }

    fn round_trip<const N: usize>() {
        let bytes: [u8; N] = std::array::from_fn(|i| i as u8);
        let f = move || assert!(bytes.iter().enumerate().all(|(i, &b)| b == i as u8));
        assert_eq!(size_of_val(&f), N);
        back(f)();

        fn back<F: FnOnce() + Send + 'static>(f: F) -> F {
            // SAFETY: Send and 'static.
            let task = unsafe { Task::new(Serve { f }) };
            // SAFETY: of the type it was made from.
            unsafe { task.into_job::<Serve<F>>() }.f
        }
    }

    #[test]
    fn jobs_of_every_size_come_back_whole() {
        round_trip::<0>();
        round_trip::<1>();
        round_trip::<47>();
        round_trip::<48>();
        round_trip::<49>();
        round_trip::<1000>();
    }

    #[test]
    fn what_fits_is_not_boxed() {
        #[repr(align(16))]
        struct Wide(u8);
        fn fits<F: FnOnce()>(_: &F) -> bool {
            TableOf::<Serve<F>>::FITS
        }
        let (full, over) = ([0_u8; 48], [0_u8; 49]);
        let wide = Wide(0);
        assert!(fits(&|| ()));
        assert!(fits(&move || assert_ne!(full[0], 1)));
        assert!(!fits(&move || assert_ne!(over[0], 1)));
        let wide = move || {
            let whole = &wide;
            assert_eq!(whole.0, 0);
        };
        assert!(!fits(&wide), "alignment above 8");
    }

    #[cfg(any(feature = "metrics", feature = "tracing"))]
    #[test]
    fn each_feature_takes_8_bytes() {
        let taken =
            8 * (usize::from(cfg!(feature = "metrics")) + usize::from(cfg!(feature = "tracing")));
        assert_eq!(size_of::<Observed<()>>(), taken);
    }

    #[test]
    fn panics_of_drops_are_contained_however_deep() {
        struct Bomb(u32);
        impl Drop for Bomb {
            fn drop(&mut self) {
                if self.0 > 0 {
                    std::panic::resume_unwind(Box::new(Bomb(self.0 - 1)));
                }
            }
        }
        assert!(!drop_contained(Bomb(0)));
        assert!(drop_contained(Bomb(3)));
        drop_payload(Box::new(Bomb(100)));
    }

    #[test]
    fn outside_a_worker_there_is_nothing_to_know() {
        assert!(!is_cancelled());
        assert_eq!(
            (deadline(), remaining(), label(), slot()),
            (None, None, None, None)
        );
    }
}
