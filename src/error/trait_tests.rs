//! Tests which errors are `Send` and `Sync`, and can be boxed as errors.

use std::cell::Cell;
use std::error::Error;
use std::io;
use std::marker::PhantomData;
use std::rc::Rc;
use std::thread;

use super::*;

/// Tells whether the type of a value is `Send` or `Sync`. If the bound holds, the compiler finds
/// the inherent method before the trait's.
struct Probe<T>(PhantomData<T>);

fn probe<T>(_: &T) -> Probe<T> {
    Probe(PhantomData)
}

impl<T: Send> Probe<T> {
    fn is_send(&self) -> bool {
        true
    }
}

impl<T: Sync> Probe<T> {
    fn is_sync(&self) -> bool {
        true
    }
}

trait Otherwise {
    fn is_send(&self) -> bool {
        false
    }
    fn is_sync(&self) -> bool {
        false
    }
}

impl<T> Otherwise for Probe<T> {}

fn spawn_error() -> io::Error {
    io::ErrorKind::WouldBlock.into()
}

#[test]
fn refused_is_sync_for_every_closure_and_send_with_a_send_one() {
    let not_send = Rc::new(1);
    let refused = Refused::new(move || *not_send, Refusal::Saturated);
    assert!(probe(&refused).is_sync());
    // The value is not a closure: the compiler infers a closure's captures too late for the probe
    // to return `false`.
    assert!(!probe(&Refused::new(Rc::new(1), Refusal::Saturated)).is_send());

    let send_not_sync = Cell::new(1);
    let refused = Refused::new(
        move || send_not_sync.get(),
        Refusal::SpawnFailed(spawn_error()),
    );
    assert!(probe(&refused).is_sync());
    assert!(probe(&refused).is_send());
    assert!(probe(&refused.without_closure()).is_send());
}

#[test]
fn the_probe_can_say_no() {
    assert!(!probe(&Cell::new(1)).is_sync());
    assert!(!probe(&Rc::new(1)).is_send());
}

#[test]
fn so_are_unrun_and_deadline_error() {
    let expired = || Unrun::new(Cell::new(1));
    assert!(probe(&expired()).is_send() && probe(&expired()).is_sync());
    let error = DeadlineError::Expired(expired());
    assert!(probe(&error).is_send() && probe(&error).is_sync());

    let not_send = || Unrun::new(Rc::new(1));
    assert!(probe(&not_send()).is_sync() && !probe(&not_send()).is_send());
    let error = DeadlineError::Expired(not_send());
    assert!(probe(&error).is_sync() && !probe(&error).is_send());
    let error = error.without_closure();
    assert!(probe(&error).is_send() && probe(&error).is_sync());
}

#[test]
fn the_other_errors_are_send_and_sync() {
    let panic = Panic::new(Box::new(Cell::new(1)));
    assert!(probe(&panic).is_send() && probe(&panic).is_sync());
    let error = BuildError::Spawn(spawn_error());
    assert!(probe(&error).is_send() && probe(&error).is_sync());
    let error = Unfinished::new(1);
    assert!(probe(&error).is_send() && probe(&error).is_sync());
}

#[test]
fn a_shared_panic_can_be_read_from_other_threads() {
    let opaque = Panic::new(Box::new(Cell::new(1)));
    let text = Panic::new(Box::new("boom"));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                assert_eq!(opaque.message(), None);
                assert_eq!(text.message().as_deref(), Some("boom"));
            });
        }
    });
}

#[test]
fn question_mark_boxes_every_error() {
    type Boxed = Box<dyn Error + Send + Sync>;

    fn refused() -> Result<(), Boxed> {
        let not_sync = Cell::new(1);
        Err(Refused::new(move || not_sync.get(), Refusal::Closed))?
    }
    fn refused_without_closure() -> Result<(), Boxed> {
        let not_send = Rc::new(1);
        Err(Refused::new(not_send, Refusal::Closed).without_closure())?
    }
    fn deadline() -> Result<(), Boxed> {
        let not_sync = Cell::new(1);
        Err(DeadlineError::Expired(Unrun::new(move || not_sync.get())))?
    }
    fn deadline_without_closure() -> Result<(), Boxed> {
        let not_send = Rc::new(1);
        Err(DeadlineError::Expired(Unrun::new(not_send)).without_closure())?
    }
    fn unrun() -> Result<(), Boxed> {
        let not_sync = Cell::new(1);
        Err(Unrun::new(move || not_sync.get()))?
    }
    fn build() -> Result<(), Boxed> {
        Err(BuildError::ZeroWorkers)?
    }
    fn unfinished() -> Result<(), Boxed> {
        Err(Unfinished::new(1))?
    }

    assert!(refused().unwrap_err().to_string().contains("shut down"));
    let error = refused_without_closure().unwrap_err();
    assert!(error.downcast_ref::<Refused<()>>().unwrap().is_closed());
    assert!(deadline().unwrap_err().to_string().contains("never ran"));
    let error = deadline_without_closure().unwrap_err();
    assert!(error.is::<DeadlineError<()>>());
    assert!(unrun().unwrap_err().to_string().contains("never ran"));
    assert!(build().unwrap_err().is::<BuildError>());
    assert!(unfinished().unwrap_err().is::<Unfinished>());
}
