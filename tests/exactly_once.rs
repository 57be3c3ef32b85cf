//! Law 2 (exactly once): a closure runs once, or is handed back or dropped once, and its captures
//! are unchanged.

mod common;

use std::thread;
use std::time::Duration;

use common::*;
use lazypool::Shutdown;

/// A value whose bytes must survive every move that the pool makes. It is aligned as `A` is.
struct Load<A, const N: usize> {
    _aligned: [A; 0],
    bytes: [u8; N],
}

#[repr(align(16))]
struct A16;

#[repr(align(64))]
struct A64;

#[repr(align(256))]
struct A256;

impl<A, const N: usize> Load<A, N> {
    fn new(seed: u8) -> Self {
        let byte = |i| seed.wrapping_add(i as u8).wrapping_mul(31);
        Self {
            _aligned: [],
            bytes: std::array::from_fn(byte),
        }
    }

    fn is_intact(&self, seed: u8) -> bool {
        std::ptr::from_ref(self).is_aligned() && self.bytes == Self::new(seed).bytes
    }
}

fn every_path<A: Send + 'static, const N: usize>() {
    let ledger = Ledger::new(12);
    let spoilt = Tally::default();
    // Checks its load, marks its entry and returns the load.
    let task = |id: usize| {
        let (load, entry) = (Load::<A, N>::new(id as u8), ledger.entry(id));
        let spoilt = spoilt.clone();
        move || {
            entry.run();
            spoilt.add(u64::from(!load.is_intact(id as u8)));
            load
        }
    };
    let unit = |id| {
        let task = task(id);
        move || {
            task();
        }
    };
    let fate = |id| ledger.fate(id);
    let pool = pool(1, 2);

    // First a new worker takes the task, then an idle one. The result has the size of the captures.
    must_serve(&pool, unit(0));
    settle(&pool);
    let value = pool.do_with_deadline(task(1), Duration::MAX).unwrap();
    assert!(value.is_intact(1));

    // Two tasks go through the queue. The next are refused by the full queue.
    let gate = hold(&pool, 1);
    must_serve(&pool, unit(2));
    must_serve(&pool, unit(3));
    let back = saturated(pool.serve(unit(4)));
    assert_eq!(fate(4), (0, 0));
    back.run_anyway();
    let back = refused(pool.do_with_deadline(task(5), Duration::MAX));
    assert!(back.into_inner()().is_intact(5));
    drop(saturated(pool.serve(unit(6))));
    assert_eq!(fate(6), (0, 1));
    gate.open();
    settle(&pool);

    // The task expires in the queue and is handed back. The caller runs one and drops the next.
    let gate = hold(&pool, 1);
    let back = expired(pool.do_with_deadline(task(7), ms(5)));
    assert_eq!(fate(7), (0, 0));
    assert!(back.run().is_intact(7));
    drop(expired(pool.do_with_deadline(task(8), ms(5))));
    assert_eq!(fate(8), (0, 1));

    // The shutdown discards the task, or hands it back.
    must_serve(&pool, unit(9));
    let returned = thread::scope(|s| {
        let _opener = gate.opener();
        let caller = s.spawn(|| pool.do_with_deadline(task(10), LONG));
        await_queued(&pool, 2);
        let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
        assert_eq!(report.discarded, 2);
        caller.join().unwrap()
    });
    let back = refused(returned);
    assert!(back.is_closed());
    assert!(back.run_anyway().is_intact(10));
    assert_eq!(fate(9), (0, 1));

    // The closed pool refuses the task.
    let back = pool.serve(unit(11)).unwrap_err();
    assert!(back.is_closed());
    back.into_inner()();
    assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());

    for id in 0..12 {
        let runs = u32::from(![6, 8, 9].contains(&id));
        assert_eq!(fate(id), (runs, 1), "task {id}");
    }
    assert_eq!(spoilt.get(), 0, "captures changed");
    assert_stats!(check_at_rest(&pool), completed: 6, expired: 2, discarded: 2, refused: 4);
}

/// Law 2: each path, with each size around the limits of inline storage and each alignment.
#[test]
fn law02_every_size_and_alignment_on_every_path() {
    timed(|| {
        every_path::<u8, 0>();
        every_path::<u8, 7>();
        every_path::<u8, 15>();
        every_path::<u8, 17>();
        every_path::<u64, 8>();
        every_path::<u64, 32>();
        every_path::<u64, 40>();
        every_path::<u64, 48>();
        every_path::<u64, 200>();
        every_path::<A16, 16>();
        every_path::<A16, 32>();
        every_path::<A64, 64>();
        every_path::<A256, 1>();
        every_path::<A256, 1024>();
        every_path::<u8, 5_000>();
    });
}
