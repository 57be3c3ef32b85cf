//! The processor time of this process, and of all others.

use std::fs;
use std::time::Duration;

/// Returns the processor time that this process has used.
pub(crate) fn processor_time() -> Duration {
    // SAFETY: zeros are a valid `timespec`, and the call writes to the one that the pointer leads
    // to.
    let t = unsafe {
        let mut t: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t);
        t
    };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Returns the processor time that other processes have used, and the time that the machine has
/// had, in ticks of the system's clock. Returns `None` if there is no `/proc`.
pub(crate) fn usage() -> Option<[f64; 2]> {
    let numbers = |file: &str, skipped: usize| -> Option<Vec<f64>> {
        let text = fs::read_to_string(file).ok()?;
        let fields = text.lines().next()?.split_whitespace().skip(skipped);
        Some(fields.map_while(|f| f.parse().ok()).collect())
    };
    // The fields are user, nice, system, idle, iowait, irq, softirq and steal. The two later ones,
    // the times of guests, are parts of user and nice.
    let machine = numbers("/proc/stat", 1)?;
    let all: f64 = machine.get(..8)?.iter().sum();
    // The fields are user and system time, of this process and of its children that have ended.
    let own: f64 = numbers("/proc/self/stat", 13)?.get(..4)?.iter().sum();
    Some([all - machine[3] - machine[4] - own, all])
}
