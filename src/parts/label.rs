//! A label that one thread writes and others read.
//!
//! | pair | one side | the other side |
//! |---|---|---|
//! | S1 | a label is written between two changes of its version | a snapshot reads the version before and after |

use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The label of the running task, for snapshots: a sequence lock with one
/// writer, touched only by labeled tasks.
#[derive(Debug)]
pub(crate) struct Label {
    at: AtomicPtr<u8>,
    len: AtomicU32,
    /// Odd during a write. Of 64 bits: it never comes round to what a reader has seen.
    writes: AtomicU64,
}

impl Label {
    pub(crate) fn new() -> Self {
        Self {
            at: AtomicPtr::new(std::ptr::null_mut()),
            len: AtomicU32::new(0),
            writes: AtomicU64::new(0),
        }
    }

    /// # Safety
    /// One thread at a time: the slot's worker.
    pub(crate) unsafe fn set(&self, label: Option<&'static str>) {
        // Relaxed: written by this thread only.
        let writes = self.writes.load(Ordering::Relaxed);
        // ORDERING: S1: odd before the parts change, even after.
        self.writes.swap(writes.wrapping_add(1), Ordering::SeqCst);
        let (at, len) = label
            .and_then(|l| Some((l.as_ptr(), u32::try_from(l.len()).ok()?)))
            .unwrap_or((std::ptr::null(), 0));
        self.at.store(at.cast_mut(), Ordering::SeqCst);
        self.len.store(len, Ordering::SeqCst);
        self.writes.swap(writes.wrapping_add(2), Ordering::SeqCst);
    }

    /// The label at some moment; `None` if it keeps changing.
    pub(crate) fn get(&self) -> Option<&'static str> {
        for _ in 0..8 {
            // ORDERING: S1: the version before and after the parts.
            let before = self.writes.load(Ordering::SeqCst);
            let at = self.at.load(Ordering::SeqCst);
            let len = self.len.load(Ordering::SeqCst);
            if before % 2 == 1 || self.writes.load(Ordering::SeqCst) != before {
                continue;
            }
            if at.is_null() {
                return None;
            }
            // SAFETY: one thread writes, and no write came between the two equal, even readings of `writes`
            // (all `SeqCst`), so both parts are of one `&'static str`.
            let bytes = unsafe { std::slice::from_raw_parts(at.cast_const(), len as usize) };
            // SAFETY: as above: they were a `str`.
            return Some(unsafe { std::str::from_utf8_unchecked(bytes) });
        }
        None
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;
    use crate::parts::cut::cut;

    /// No other thread sets it.
    fn assert_set_and_seen(label: &Label) {
        let (one, another) = (Some("one"), Some("another"));
        for now in [one, None, another, one, another, None] {
            // SAFETY: no other thread sets it.
            unsafe { label.set(now) };
            assert_eq!(label.get(), now);
        }
    }

    #[test]
    fn a_label_is_read_whole_from_the_first_on() {
        let label = &Label::new();
        assert_eq!(label.get(), None);
        assert_set_and_seen(label);
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    for next in [Some("short"), Some("a longer one"), None] {
                        // SAFETY: no other thread sets it.
                        unsafe { label.set(next) };
                    }
                }
            });
            for _ in 0..cut(100_000) {
                let seen = label.get();
                assert!(
                    matches!(seen, None | Some("short" | "a longer one")),
                    "{seen:?}"
                );
            }
            stop.store(true, Ordering::SeqCst);
        });
        assert_set_and_seen(label);
    }
}
