//! The threads of this process. Linux only.

/// Returns the number of threads of this process.
pub fn count() -> usize {
    // Not by a listing of /proc/self/task: it ends early if a thread ends meanwhile.
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let count = status
        .lines()
        .find_map(|line| line.strip_prefix("Threads:"));
    count.expect("a count").trim().parse().expect("a number")
}

/// Waits until no more threads are left than `before`. The memory that an ending thread holds would
/// pass for a leak.
pub fn wait_until_ended(before: usize) {
    while count() > before {
        std::thread::yield_now();
    }
}
