//! Proof that the models can fail: one access of the source, named by the
//! environment, does less than it says. See `loom-tests/mutants`. Both checkers,
//! loom and shuttle, make their atomics of [`atomics`], which asks here.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::panic::Location;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Act {
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
    pub(crate) fn order(self, written: Ordering) -> Ordering {
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
pub(crate) fn at(name: &str, order: Ordering, or_else: Option<Ordering>) -> Act {
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

/// The atomics of a checker, over its own in a module `atomic`; `first` is done to a
/// new one. Each access asks [`at`] whether it is to go wrong.
macro_rules! atomics {
    (first = $first:expr) => { $crate::sync::mutant::atomics! {
        first = $first;
        AtomicBool(bool) {}
        AtomicU32(u32) {
            fetch_add: |was, by| was.wrapping_add(by);
            fetch_sub: |was, by| was.wrapping_sub(by);
            fetch_or: |was, by| was | by;
        }
        AtomicU64(u64) {
            fetch_add: |was, by| was.wrapping_add(by);
            fetch_sub: |was, by| was.wrapping_sub(by);
            fetch_or: |was, by| was | by;
            fetch_and: |was, by| was & by;
        }
    } };

    (first = $first:expr; $($name:ident($value:ty) { $($fetch:ident: $apply:expr;)* })*) => {$(
        #[derive(Debug)]
        pub(crate) struct $name(atomic::$name);

        impl Default for $name {
            fn default() -> Self {
                Self::new(<$value>::default())
            }
        }

        #[allow(dead_code)] // not every word has every access
        impl $name {
            #[track_caller]
            pub(crate) fn new(value: $value) -> Self {
                let this = atomic::$name::new(value);
                let first: fn(&atomic::$name, $value) = $first;
                first(&this, value);
                Self(this)
            }

            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.0.load($crate::sync::mutant::at("load", order, None).order(order))
            }

            #[track_caller]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                match $crate::sync::mutant::at("store", order, None) {
                    $crate::sync::mutant::Act::Omit => {}
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
                match $crate::sync::mutant::at("compare_exchange", order, Some(or_else)) {
                    $crate::sync::mutant::Act::Omit => self.0.compare_exchange(from, from, order, or_else),
                    $crate::sync::mutant::Act::Torn => self
                        .0
                        .compare_exchange(from, from, order, or_else)
                        .map(|_| self.0.swap(to, order)),
                    $crate::sync::mutant::Act::Blind => Ok(self.0.swap(to, order)),
                    $crate::sync::mutant::Act::Else(or_else) => self.0.compare_exchange(from, to, order, or_else),
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
                match $crate::sync::mutant::at(name, order, None) {
                    $crate::sync::mutant::Act::Omit => read(),
                    $crate::sync::mutant::Act::Torn => {
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
pub(crate) use atomics;
