//! The only place that knows whether the crate runs on `std` or under the
//! loom model checker (`--cfg lazypool_loom`).

#[cfg(not(lazypool_loom))]
mod imp {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::panic::catch_unwind;
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    };
    pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use std::{thread, thread_local};

    /// A `Release` store. Under loom 0.7 a swap: there a store that races a
    /// compare-and-swap of another thread is taken for a data race.
    #[inline(always)]
    pub(crate) fn store_release(word: &AtomicU64, value: u64) {
        word.store(value, Ordering::Release);
    }

    /// `std`'s cell, with loom's interface.
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(lazypool_loom)]
mod imp {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::Ordering;
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
    // loom's cannot be a receiver, and the counts of ours decide nothing.
    pub(crate) use std::sync::Arc;

    use loom::sync::atomic;
    pub(crate) use loom::sync::atomic::AtomicPtr;

    /// An atomic whose first value counts as a `SeqCst` store: loom lets a
    /// `SeqCst` load skip the newest `SeqCst` store for an older value only if
    /// that was stored otherwise, as by `new`. Words that see nothing but
    /// `SeqCst` accesses (both sides of every pair in `shared.rs` that announces
    /// and then looks) are then as sequentially consistent as C++20 says.
    ///
    /// Each access asks [`mutant::at`] whether it is to go wrong.
    macro_rules! atomics {
        ($($name:ident($value:ty) { $($fetch:ident: $apply:expr;)* })*) => {$(
            #[derive(Debug)]
            pub(crate) struct $name(atomic::$name);

            #[allow(dead_code)] // not every word has every access
            impl $name {
                #[track_caller]
                pub(crate) fn new(value: $value) -> Self {
                    let this = atomic::$name::new(value);
                    this.store(value, Ordering::SeqCst);
                    Self(this)
                }

                #[track_caller]
                pub(crate) fn load(&self, order: Ordering) -> $value {
                    self.0.load(mutant::at("load", order, None).order(order))
                }

                #[track_caller]
                pub(crate) fn store(&self, value: $value, order: Ordering) {
                    match mutant::at("store", order, None) {
                        Act::Omit => {}
                        act => self.0.store(value, act.order(order)),
                    }
                }

                #[track_caller]
                pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                    self.modify("swap", order, |_| value, |o| self.0.swap(value, o))
                }

                $(#[track_caller]
                pub(crate) fn $fetch(&self, by: $value, order: Ordering) -> $value {
                    let apply: fn($value, $value) -> $value = $apply;
                    let real = |o| self.0.$fetch(by, o);
                    self.modify(stringify!($fetch), order, |was| apply(was, by), real)
                })*

                #[track_caller]
                pub(crate) fn compare_exchange(
                    &self,
                    from: $value,
                    to: $value,
                    order: Ordering,
                    or_else: Ordering,
                ) -> Result<$value, $value> {
                    match mutant::at("compare_exchange", order, Some(or_else)) {
                        Act::Omit => self.0.compare_exchange(from, from, order, or_else),
                        Act::Torn => self
                            .0
                            .compare_exchange(from, from, order, or_else)
                            .map(|_| self.0.swap(to, order)),
                        Act::Blind => Ok(self.0.swap(to, order)),
                        Act::Else(or_else) => self.0.compare_exchange(from, to, order, or_else),
                        act => self.0.compare_exchange(from, to, act.order(order), or_else),
                    }
                }

                #[track_caller]
                fn modify(
                    &self,
                    name: &'static str,
                    order: Ordering,
                    apply: impl FnOnce($value) -> $value,
                    real: impl FnOnce(Ordering) -> $value,
                ) -> $value {
                    // The newest value, which a load may miss.
                    let read = || {
                        let any = <$value>::default();
                        let (Ok(now) | Err(now)) =
                            self.0.compare_exchange(any, any, order, Ordering::SeqCst);
                        now
                    };
                    match mutant::at(name, order, None) {
                        Act::Omit => read(),
                        Act::Torn => {
                            let was = read();
                            self.0.swap(apply(was), order);
                            was
                        }
                        act => real(act.order(order)),
                    }
                }
            }
        )*};
    }

    atomics! {
        AtomicBool(bool) {}
        AtomicU32(u32) {}
        AtomicUsize(usize) {
            fetch_add: |was, by| was.wrapping_add(by);
            fetch_sub: |was, by| was.wrapping_sub(by);
        }
        AtomicU64(u64) {
            fetch_add: |was, by| was.wrapping_add(by);
            fetch_sub: |was, by| was.wrapping_sub(by);
            fetch_or: |was, by| was | by;
            fetch_and: |was, by| was & by;
            fetch_max: Ord::max;
        }
    }

    #[track_caller]
    pub(crate) fn store_release(word: &AtomicU64, value: u64) {
        match mutant::at("store_release", Ordering::Release, None) {
            Act::Omit => {}
            act => drop(word.0.swap(value, act.order(Ordering::AcqRel))),
        }
    }

    use mutant::Act;

    /// Proof that the models can fail: one access of the source, named by the
    /// environment, does less than it says. See `loom-tests/mutants`.
    mod mutant {
        use super::Ordering;
        use std::cell::RefCell;
        use std::collections::HashSet;
        use std::fs::File;
        use std::io::Write;
        use std::panic::Location;
        use std::sync::{Mutex, OnceLock};

        #[derive(Debug, Clone, Copy, PartialEq)]
        pub(super) enum Act {
            AsWritten,
            /// With another ordering,
            Order(Ordering),
            /// or only where a compare-and-swap fails.
            Else(Ordering),
            /// Not at all, though it says so.
            Omit,
            /// In two steps.
            Torn,
            /// A compare-and-swap that does not compare.
            Blind,
        }

        impl Act {
            pub(super) fn order(self, written: Ordering) -> Ordering {
                match self {
                    Self::Order(other) => other,
                    _ => written,
                }
            }
        }

        enum Mode {
            Off,
            /// `LAZYPOOL_SITES=file`: lists the accesses that a model makes.
            List(Mutex<(File, HashSet<String>)>),
            /// `LAZYPOOL_MUTANT=file:line:column/act`.
            Mutant(String, u32, u32, Act),
        }

        fn parse(mutant: &str) -> Option<Mode> {
            let (site, act) = mutant
                .split_once('/')
                .and_then(|_| mutant.rsplit_once('/'))?;
            let (site, column) = site.rsplit_once(':')?;
            let (file, line) = site.rsplit_once(':')?;
            let order = |name| {
                Some(match name {
                    "Relaxed" => Ordering::Relaxed,
                    "Acquire" => Ordering::Acquire,
                    "Release" => Ordering::Release,
                    "AcqRel" => Ordering::AcqRel,
                    _ => return None,
                })
            };
            let act = match (act, act.strip_prefix("else-")) {
                ("omit", _) => Act::Omit,
                ("torn", _) => Act::Torn,
                ("blind", _) => Act::Blind,
                (_, Some(name)) => Act::Else(order(name)?),
                (name, None) => Act::Order(order(name)?),
            };
            let at = (line.parse().ok()?, column.parse().ok()?);
            Some(Mode::Mutant(file.to_owned(), at.0, at.1, act))
        }

        fn mode() -> &'static Mode {
            static MODE: OnceLock<Mode> = OnceLock::new();
            MODE.get_or_init(|| {
                if let Ok(path) = std::env::var("LAZYPOOL_SITES") {
                    let file = File::create(path).expect("a file to be written");
                    Mode::List(Mutex::new((file, HashSet::new())))
                } else if let Ok(mutant) = std::env::var("LAZYPOOL_MUTANT") {
                    parse(&mutant).expect("file:line:column/act")
                } else {
                    Mode::Off
                }
            })
        }

        std::thread_local! {
            /// What is on the list already; a model has one thread of the system.
            static SEEN: RefCell<HashSet<*const Location<'static>>> = RefCell::default();
        }

        /// What the access that the caller was called for is to do.
        #[track_caller]
        pub(super) fn at(name: &str, order: Ordering, or_else: Option<Ordering>) -> Act {
            let mode = mode();
            if let Mode::Off = mode {
                return Act::AsWritten;
            }
            let at = Location::caller();
            match mode {
                Mode::Mutant(file, line, column, act)
                    if (at.line(), at.column()) == (*line, *column) && at.file() == file =>
                {
                    *act
                }
                Mode::List(listed) => {
                    if !SEEN.with(|seen| seen.borrow_mut().insert(std::ptr::from_ref(at))) {
                        return Act::AsWritten;
                    }
                    let or_else = or_else.map_or(String::new(), |o| format!(" {o:?}"));
                    let site = format!("{at} {name} {order:?}{or_else}");
                    let (file, listed) = &mut *listed.lock().expect("no panic under it");
                    if listed.insert(site.clone()) {
                        writeln!(file, "{site}").expect("writable");
                    }
                    Act::AsWritten
                }
                _ => Act::AsWritten,
            }
        }
    }

    /// For a thread that has looked in vain a few times for a step of another.
    /// Two such threads could take turns for ever beside the third that is to
    /// take the step, and loom would try it: let it go on from here in one
    /// interleaving, which lets the others run. Schedules in which this thread
    /// looks less often come to the same states.
    pub(crate) fn assume_fairness() {
        loom::skip_branch();
    }

    /// A model's threads share one thread of the system.
    macro_rules! per_thread {
        ($($(#[$doc:meta])* static $name:ident: $t:ty = const { $init:expr };)*) => {
            loom::thread_local! { $($(#[$doc])* static $name: $t = $init;)* }
        };
    }
    pub(crate) use per_thread as thread_local;

    /// A panic in a model is its failure, wherever it is.
    pub(crate) fn catch_unwind<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
        Ok(f())
    }

    /// loom's threads, but for parking: there an `unpark` wakes its thread from
    /// whatever it waits for, a mutex included, and loses the token.
    pub(crate) mod thread {
        use super::{Arc, Condvar, Mutex};
        pub(crate) use loom::thread::yield_now;
        use std::cell::{Cell, RefCell};

        std::thread_local! {
            /// How many of the next threads the system does not give. Shared by
            /// the threads of a model.
            pub(crate) static REFUSED: Cell<u32> = const { Cell::new(0) };
        }

        #[derive(Debug)]
        struct Parker {
            token: Mutex<bool>,
            given: Condvar,
        }

        loom::thread_local! {
            static CURRENT: RefCell<Option<Thread>> = RefCell::new(None);
        }

        #[derive(Debug, Clone)]
        pub(crate) struct Thread(Arc<Parker>);

        impl Thread {
            fn new() -> Self {
                Self(Arc::new(Parker {
                    token: Mutex::new(false),
                    given: Condvar::new(),
                }))
            }

            pub(crate) fn id(&self) -> *const () {
                Arc::as_ptr(&self.0).cast()
            }

            pub(crate) fn unpark(&self) {
                let mut token = super::super::lock(&self.0.token);
                *token = true;
                self.0.given.notify_one();
            }
        }

        pub(crate) fn current() -> Thread {
            CURRENT.with(|c| c.borrow_mut().get_or_insert_with(Thread::new).clone())
        }

        pub(crate) fn park() {
            let own = current();
            let mut token = super::super::lock(&own.0.token);
            while !*token {
                token = own.0.given.wait(token).expect("never poisoned");
            }
            *token = false;
        }

        #[derive(Debug)]
        pub(crate) struct JoinHandle<T> {
            inner: loom::thread::JoinHandle<T>,
            thread: Thread,
        }

        impl<T> JoinHandle<T> {
            pub(crate) fn thread(&self) -> &Thread {
                &self.thread
            }

            pub(crate) fn join(self) -> std::thread::Result<T> {
                self.inner.join()
            }
        }

        /// Names and stack sizes mean nothing here.
        #[derive(Debug)]
        pub(crate) struct Builder;

        impl Builder {
            pub(crate) fn new() -> Self {
                Self
            }

            pub(crate) fn name(self, _: String) -> Self {
                self
            }

            pub(crate) fn stack_size(self, _: usize) -> Self {
                self
            }

            pub(crate) fn spawn<T: 'static>(
                self,
                f: impl FnOnce() -> T + Send + 'static,
            ) -> std::io::Result<JoinHandle<T>> {
                if let Some(left) = REFUSED.get().checked_sub(1) {
                    REFUSED.set(left);
                    return Err(std::io::ErrorKind::OutOfMemory.into());
                }
                let thread = Thread::new();
                let own = thread.clone();
                let inner = loom::thread::spawn(move || {
                    CURRENT.with(|c| *c.borrow_mut() = Some(own));
                    f()
                });
                Ok(JoinHandle { inner, thread })
            }
        }
    }
}

pub(crate) use imp::*;

/// Waits on a condition variable, at most as long as is left (`None`: no end), and
/// whatever the poisoning; see [`lock`].
pub(crate) fn wait<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    left: Option<std::time::Duration>,
) -> MutexGuard<'a, T> {
    match left {
        None => condition
            .wait(guard)
            .unwrap_or_else(std::sync::PoisonError::into_inner),
        Some(left) => match condition.wait_timeout(guard, left) {
            Ok((guard, _)) => guard,
            Err(poisoned) => poisoned.into_inner().0,
        },
    }
}

/// Locks a mutex. A panic while one of our locks is held is a bug of ours that
/// has already been reported by that panic; the data behind it is counters and
/// lists that are valid after every step, so poisoning adds nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}
