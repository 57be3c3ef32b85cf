//! What else the machine was doing meanwhile.

use std::fs;
use std::time::Duration;

/// Processor time: of this process, and of the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    own: Duration,
    busy: f64,
    all: f64,
}

/// The processor time that this process has used.
pub(crate) fn processor_time() -> Duration {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes a timespec to where it is told.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    assert_eq!(failed, 0, "the clock exists");
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

impl Usage {
    /// `None` where there is no `/proc`.
    pub(crate) fn now() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let fields = stat.lines().next()?.split_whitespace().skip(1);
        let ticks: Vec<f64> = fields.map_while(|f| f.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; what follows is in these.
        let eight = ticks.get(..8)?;
        // SAFETY: reads a constant of the system.
        let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        let all = eight.iter().sum::<f64>() / per_second;
        let idle = (eight[3] + eight[4]) / per_second;
        Some(Self {
            own: processor_time(),
            busy: all - idle,
            all,
        })
    }

    /// The part of the machine's processor time that others have used since.
    pub(crate) fn of_others_since(&self, before: &Self) -> f64 {
        let own = (self.own - before.own).as_secs_f64();
        let busy = self.busy - before.busy;
        ((busy - own) / (self.all - before.all)).clamp(0.0, 1.0)
    }
}
