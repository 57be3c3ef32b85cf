//! A shortage of threads: replaces the system's `pthread_create` in the test binaries that include
//! this file.

#![allow(dead_code)] // each binary that includes this file uses part of it

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

thread_local! {
    /// Called before each thread that this thread starts. The start fails if it returns `true`.
    static DENY: RefCell<Option<Box<dyn FnMut() -> bool>>> = const { RefCell::new(None) };
    /// The number of threads that this thread has tried to start.
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type PthreadCreate = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    Start,
    *mut c_void,
) -> c_int;

/// Replaces the C library's function of that name for all code linked into this program.
///
/// # Safety
///
/// The conditions are those of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_create(
    native: *mut libc::pthread_t,
    attr: *const libc::pthread_attr_t,
    start: Start,
    arg: *mut c_void,
) -> c_int {
    static REAL: OnceLock<PthreadCreate> = OnceLock::new();
    let real = REAL.get_or_init(|| {
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) };
        assert!(!found.is_null(), "no pthread_create");
        // SAFETY: the C library's function of this name has this type.
        unsafe { std::mem::transmute::<*mut c_void, PthreadCreate>(found) }
    });
    let _ = ASKED.try_with(|n| n.set(n.get() + 1));
    // Taken out during the call, because `deny` may start threads itself.
    let deny = DENY.try_with(RefCell::take).ok().flatten();
    if let Some(mut deny) = deny {
        let denied = deny();
        DENY.with(|d| d.replace(Some(deny)));
        if denied {
            return libc::EAGAIN;
        }
    }
    // SAFETY: the caller upholds the conditions of the C library's function.
    unsafe { real(native, attr, start, arg) }
}

/// While this value lives, `deny` is called before each thread that the current thread starts.
pub(crate) struct Shortage;

impl Shortage {
    pub(crate) fn when(deny: impl FnMut() -> bool + 'static) -> Self {
        DENY.set(Some(Box::new(deny)));
        Self
    }

    /// Lets every start of a thread fail.
    pub(crate) fn total() -> Self {
        Self::when(|| true)
    }
}

impl Drop for Shortage {
    fn drop(&mut self) {
        DENY.set(None);
    }
}

pub(crate) fn asked() -> u64 {
    ASKED.get()
}
