//! Refuses threads: a function that stands in for the C library's `pthread_create`, and fails at
//! chosen attempts.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of attempts that still succeed, in the upper half, and of attempts that fail after
/// them, in the lower half.
static PLAN: AtomicU64 = AtomicU64::new(0);
const ONE_MORE: u64 = 1 << 32;

/// Lets the next `after` attempts to start a thread succeed, and then makes `times` fail. Replaces
/// earlier requests.
pub fn refuse(after: u32, times: u32) {
    PLAN.store(u64::from(after) << 32 | u64::from(times), Ordering::Relaxed);
}

/// Counts an attempt. Returns `true` if it must fail.
fn is_refused() -> bool {
    let mut refused = false;
    let next = |plan: u64| {
        refused = false;
        if plan == 0 || plan >= ONE_MORE {
            plan.checked_sub(ONE_MORE)
        } else {
            refused = true;
            Some(plan - 1)
        }
    };
    let _ = PLAN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    refused
}

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Native = *mut libc::pthread_t;
type Attr = *const libc::pthread_attr_t;

/// Stands in for the C library's `pthread_create`: the linker finds this one first for all code in
/// the program.
///
/// # Safety
///
/// The conditions of the C library's function hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    native: Native,
    attr: Attr,
    start: Start,
    arg: *mut c_void,
) -> c_int {
    if is_refused() {
        return libc::EAGAIN;
    }
    // SAFETY: the caller upholds the conditions of the function that this one stands in for.
    unsafe { real(native, attr, start, arg) }
}

/// The address sanitizer's own function. The sanitizer must learn of each thread.
#[cfg(fuzzing)]
use sanitizer::__interceptor_pthread_create as real;

#[cfg(fuzzing)]
mod sanitizer {
    extern "C" {
        pub(super) fn __interceptor_pthread_create(
            native: super::Native,
            attr: super::Attr,
            start: super::Start,
            arg: *mut std::ffi::c_void,
        ) -> std::ffi::c_int;
    }
}

/// Calls the C library's function.
#[cfg(not(fuzzing))]
unsafe fn real(native: Native, attr: Attr, start: Start, arg: *mut c_void) -> c_int {
    use std::sync::OnceLock;

    type PthreadCreate = unsafe extern "C" fn(Native, Attr, Start, *mut c_void) -> c_int;
    static REAL: OnceLock<PthreadCreate> = OnceLock::new();
    let real = REAL.get_or_init(|| {
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) };
        assert!(!found.is_null(), "no pthread_create");
        // SAFETY: the C library's function of this name has this type.
        unsafe { std::mem::transmute::<*mut c_void, PthreadCreate>(found) }
    });
    // SAFETY: the caller upholds the conditions of the C library's function.
    unsafe { real(native, attr, start, arg) }
}
