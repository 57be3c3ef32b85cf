//! The figures that the OS has about this process, and the core that it runs on. Linux only.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// An allocator that counts live heap bytes, so that a leak shows at once and not as a trend.
#[derive(Debug)]
pub struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);

// SAFETY: all calls are forwarded to `System` unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// Returns the number of live heap bytes, if `Counting` is the allocator.
pub fn live_bytes() -> i64 {
    LIVE.load(Ordering::Relaxed)
}

/// Returns a figure of a text like `/proc/self/status`.
fn figure(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns a figure of this process.
fn own(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    figure(&status, name).expect("a figure")
}

/// Returns the number of threads of this process.
pub fn threads() -> usize {
    // Not by a listing of /proc/self/task: it ends early if a thread ends meanwhile.
    own("Threads:") as usize
}

/// Returns the resident memory in KiB.
pub fn resident() -> u64 {
    own("VmRSS:")
}

/// Returns the processor time and the voluntary context switches of the threads whose names start
/// with `prefix`.
pub fn activity(prefix: &str) -> (Duration, u64) {
    let mut nanos = 0;
    let mut switches = 0;
    for dir in fs::read_dir("/proc/self/task").expect("/proc/self/task") {
        let Ok(dir) = dir.map(|d| d.path()) else {
            continue;
        };
        let read = |file: &str| fs::read_to_string(dir.join(file)).unwrap_or_default();
        if !read("comm").starts_with(prefix) {
            continue;
        }
        nanos += figure(&read("schedstat"), "").unwrap_or(0);
        switches += figure(&read("status"), "voluntary_ctxt_switches:").unwrap_or(0);
    }
    (Duration::from_nanos(nanos), switches)
}

/// Binds this thread, and the threads that it starts from now on, to one core, or to all cores that
/// the process began with.
pub fn pin(one: bool) {
    use std::sync::OnceLock;
    static ALL: OnceLock<libc::cpu_set_t> = OnceLock::new();
    let size = std::mem::size_of::<libc::cpu_set_t>();
    let all = ALL.get_or_init(|| {
        // SAFETY: all zeros is a valid bit set, and the call is given its size.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size, &mut set);
            set
        }
    });
    let mut set = *all;
    if one {
        // SAFETY: both bit sets are initialized, and all indices are below their size.
        unsafe {
            libc::CPU_ZERO(&mut set);
            let first = (0..libc::CPU_SETSIZE as usize).find(|&cpu| libc::CPU_ISSET(cpu, all));
            libc::CPU_SET(first.unwrap_or(0), &mut set);
        }
    }
    // SAFETY: the bit set is initialized, and the call is given its size.
    unsafe { libc::sched_setaffinity(0, size, &set) };
}
