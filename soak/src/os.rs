//! The figures that the OS has about this process, and limits that it can be given. Linux only.

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

/// Returns the number of threads of this process.
pub fn threads() -> usize {
    // Not by a listing of /proc/self/task: it ends early if a thread ends meanwhile.
    let status = fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let count = status.lines().find_map(|l| l.strip_prefix("Threads:"));
    (count.expect("a count").trim().parse()).expect("a number")
}

/// Returns the names of this process's threads.
pub fn thread_names() -> Vec<String> {
    let dirs = fs::read_dir("/proc/self/task").expect("/proc/self/task");
    dirs.filter_map(|dir| fs::read_to_string(dir.ok()?.path().join("comm")).ok())
        .map(|name| name.trim_end().to_owned())
        .collect()
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
        let first = |text: &str| text.split_whitespace().next().and_then(|n| n.parse().ok());
        nanos += first(&read("schedstat")).unwrap_or(0_u64);
        switches += read("status")
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
            .and_then(first)
            .unwrap_or(0_u64);
    }
    (Duration::from_nanos(nanos), switches)
}

/// Returns the resident memory in KiB.
pub fn resident() -> u64 {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|text| {
            let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
            line.split_whitespace().next()?.parse().ok()
        })
        .unwrap_or(0)
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

/// Becomes an ordinary user, to whom `RLIMIT_NPROC` applies.
pub fn drop_privileges() {
    const NOBODY: u32 = 65_534;
    // SAFETY: the system calls get valid arguments, and this is the only thread so far.
    unsafe {
        if libc::geteuid() == 0 {
            libc::setgroups(0, std::ptr::null());
            assert_eq!(libc::setgid(NOBODY), 0, "setgid");
            assert_eq!(libc::setuid(NOBODY), 0, "setuid");
            // Without this, the process could not read its own entries in /proc.
            libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
        }
    }
}

/// Lets the OS start further threads for this user, or makes it refuse them.
pub fn allow_threads(allow: bool) {
    // SAFETY: the system calls get a valid struct. The hard limit does not change, so the soft
    // one can be raised again.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NPROC, &mut limit);
        limit.rlim_cur = if allow { limit.rlim_max } else { 0 };
        libc::setrlimit(libc::RLIMIT_NPROC, &limit);
    }
}
