//! Thread-locals that exist until the next execution begins. So a destructor can still use them
//! while its thread ends, as it can use a thread-local of `std` that needs no drop. shuttle's own
//! thread-locals do not allow that.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// A value for each thread of an execution.
#[derive(Debug)]
pub(crate) struct PerThread<T> {
    init: fn() -> T,
}

std::thread_local! {
    /// The values, by address of the [`PerThread`] and number of the thread. The map holds the
    /// values of all threads, because the threads of an execution share one OS thread.
    static VALUES: RefCell<HashMap<(usize, usize), Rc<dyn Any>>> = RefCell::default();
}

/// Drops all values. Called when a new execution begins.
pub(super) fn forget() {
    VALUES.take();
}

impl<T: 'static> PerThread<T> {
    pub(crate) const fn new(init: fn() -> T) -> Self {
        Self { init }
    }

    pub(crate) fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        let key = (std::ptr::from_ref(self) as usize, super::me());
        let value = VALUES.with_borrow_mut(|values| {
            let value = values.entry(key).or_insert_with(|| Rc::new((self.init)()));
            Rc::clone(value)
        });
        f(value.downcast_ref().expect("of this key's type"))
    }

    /// Calls `f` as `std`'s `try_with` does. It cannot fail, because the value always exists.
    pub(crate) fn try_with<R>(
        &'static self,
        f: impl FnOnce(&T) -> R,
    ) -> Result<R, std::convert::Infallible> {
        Ok(self.with(f))
    }
}

/// Declares a value for each thread of the execution. `std`'s thread-locals would be shared,
/// because all threads of an execution run on one OS thread.
macro_rules! per_thread {
    ($($(#[$doc:meta])* static $name:ident: $t:ty = const { $init:expr };)*) => {
        $($(#[$doc])*
        static $name: $crate::sync::PerThread<$t> = $crate::sync::PerThread::new(|| $init);)*
    };
}
pub(crate) use per_thread as thread_local;
