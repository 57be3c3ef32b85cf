//! For loom: thin wrappers of the crate's parts, which the models in `loom-tests` use. For shuttle:
//! the checks that the scenarios in `shuttle-tests` use.

use crate::pool::Pool;

/// Makes methods of a part public on the type that wraps it. The part says what they do.
#[cfg(lazypool_loom)]
macro_rules! forward {
    ($type:ident: $($name:ident($($arg:ident: $of:ty),*) $(-> $result:ty)?;)*) => {
        impl $type {
            $(pub fn $name(&self, $($arg: $of),*) $(-> $result)? {
                self.0.$name($($arg),*)
            })*
        }
    };
}

#[cfg(lazypool_shuttle)]
pub use crate::sync::control::*;
#[cfg(lazypool_loom)]
pub use {
    completion::*, handle::*, line::*, members::*, queue::*, ring::*, slot::*, time::*, words::*,
};

#[cfg(lazypool_loom)]
mod completion;
#[cfg(lazypool_loom)]
mod handle;
#[cfg(lazypool_shuttle)]
pub mod judge;
#[cfg(lazypool_loom)]
mod line;
#[cfg(lazypool_loom)]
mod members;
#[cfg(lazypool_loom)]
mod queue;
#[cfg(lazypool_loom)]
mod ring;
#[cfg(lazypool_loom)]
mod slot;
#[cfg(lazypool_loom)]
mod time;
#[cfg(lazypool_loom)]
mod words;

/// Asserts that nothing is left over in a pool whose threads have ended: no worker in flight, no
/// entry in a ring, no queued task, no submitter that waits.
pub fn assert_at_rest(pool: &Pool) {
    pool.core().assert_all_at_rest();
}
