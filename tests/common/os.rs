//! Facts that the system reports about this process's threads.

use std::fs;

/// Returns the directories in `/proc` of this process's threads.
fn tasks() -> Vec<std::path::PathBuf> {
    fs::read_dir("/proc/self/task")
        .expect("/proc/self/task")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

/// Returns the number of threads of this process.
pub fn thread_total() -> usize {
    // A listing of the threads would not do: it ends early if a thread ends meanwhile.
    let status = fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let count = status.lines().find_map(|l| l.strip_prefix("Threads:"));
    (count.expect("a count").trim().parse()).expect("a number")
}

/// Returns the number of workers of the pool called `name`, which are threads called
/// `{name}-{digits}`. The system keeps 15 bytes of a thread's name, so `name` must be short.
pub fn workers_named(name: &str) -> usize {
    assert!(name.len() <= 11, "the system would truncate {name:?}");
    let is_number = |slot: &str| !slot.is_empty() && slot.bytes().all(|b| b.is_ascii_digit());
    tasks()
        .iter()
        // A thread that ends meanwhile has no name any more.
        .filter_map(|dir| fs::read_to_string(dir.join("comm")).ok())
        .filter(|comm| {
            comm.trim_end()
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('-'))
                .is_some_and(is_number)
        })
        .count()
}

/// Returns the CPU time in nanoseconds and the voluntary context switches of all threads of this
/// process except the calling one.
pub fn others_activity() -> (u64, u64) {
    let me = fs::read_link("/proc/thread-self").expect("/proc/thread-self");
    let me = me.file_name().expect("a thread id").to_owned();
    let mut nanos = 0;
    let mut switches = 0;
    for dir in tasks() {
        if dir.file_name() == Some(&me) {
            continue;
        }
        if let Ok(text) = fs::read_to_string(dir.join("schedstat")) {
            let first = text.split_whitespace().next().expect("schedstat");
            nanos += first.parse::<u64>().expect("schedstat");
        }
        if let Ok(text) = fs::read_to_string(dir.join("status")) {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            switches += line.map_or(0, |n| n.trim().parse::<u64>().expect("switches"));
        }
    }
    (nanos, switches)
}
