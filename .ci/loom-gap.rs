//! Whether a loom keeps an earlier load of one thread where another loads the word and then
//! changes it: both answers of the thread that looks must come up. Built by `.ci/loom-gap`.

use loom::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

fn main() {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let all = Arc::clone(&seen);
    loom::model(move || {
        let word = Arc::new(AtomicUsize::new(0));
        let (a, b) = (Arc::clone(&word), Arc::clone(&word));
        let looks = loom::thread::spawn(move || a.load(SeqCst));
        let changes = loom::thread::spawn(move || {
            let was = b.load(SeqCst);
            let _ = b.compare_exchange(was, 1, SeqCst, SeqCst);
        });
        changes.join().unwrap();
        all.lock().unwrap().insert(looks.join().unwrap());
    });
    let seen = seen.lock().unwrap();
    assert!(
        seen.len() == 2,
        "this loom's reduction hides a load: seen {seen:?} of 0 and 1"
    );
}
