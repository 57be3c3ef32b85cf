//! Thread-locals that last until the next execution: as with `std`'s without a destructor, the
//! destructors of a thread's other values can still use them, which those of shuttle's own do not
//! allow.

use super::world;
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
    /// By key and number of the thread; all threads of an execution share one of the system.
    static VALUES: RefCell<HashMap<(usize, usize), Rc<dyn Any>>> = RefCell::default();
}

/// A new execution begins.
pub(super) fn forget() {
    VALUES.with(|values| values.borrow_mut().clear());
}

impl<T: 'static> PerThread<T> {
    pub(crate) const fn new(init: fn() -> T) -> Self {
        Self { init }
    }

    pub(crate) fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        let key = (std::ptr::from_ref(self) as usize, world::me());
        let value = VALUES.with(|values| {
            let mut values = values.borrow_mut();
            let value = values.entry(key).or_insert_with(|| Rc::new((self.init)()));
            Rc::clone(value)
        });
        f(value.downcast_ref().expect("of this key's type"))
    }

    /// As `std`'s, of a value that is always there.
    pub(crate) fn try_with<R>(
        &'static self,
        f: impl FnOnce(&T) -> R,
    ) -> Result<R, std::convert::Infallible> {
        Ok(self.with(f))
    }
}
