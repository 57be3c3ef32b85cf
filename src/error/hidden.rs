//! The two wrappers that make errors `Sync`.
//!
//! They have a module of their own, so that the other error types cannot access their private
//! fields. Both safety arguments rely on that.

use std::any::Any;

/// A closure on its way back to its caller. It can be moved in and moved out, and never borrowed.
pub(super) struct Closure<F>(F);

// SAFETY: sharing a `Closure<F>` shares no `F`. The field is private to this module, no method
// takes `&self` or `&mut self`, and there is no trait implementation, so `&Closure<F>` gives no
// access to the `F` inside. Only a thread that owns the `Closure<F>` has access. The compiler
// implements `Send` for `Closure<F>` only if `F` is `Send`, so moving a `Closure<F>` to another
// thread needs `F: Send`.
unsafe impl<F> Sync for Closure<F> {}

impl<F> Closure<F> {
    pub(super) const fn new(closure: F) -> Self {
        Self(closure)
    }

    pub(super) fn into_inner(self) -> F {
        self.0
    }
}

/// A caught panic payload. It can be moved in and moved out. In between, only its text can be read.
pub(super) struct Payload(Box<dyn Any + Send>);

// SAFETY: the payload may be of a type that is not `Sync`, so `&Payload` must give no access to a
// value of such a type. The field is private to this module, and the only method that takes `&self`
// is `message`. It asks the payload for its `TypeId`, which comes from the vtable and reads no data
// of the payload. It then reads the data only as a `&'static str` or a `String`, which are `Sync`.
// All other methods take the `Payload` by value, and the payload is `Send`.
unsafe impl Sync for Payload {}

impl Payload {
    pub(super) const fn new(payload: Box<dyn Any + Send>) -> Self {
        Self(payload)
    }

    pub(super) fn message(&self) -> Option<String> {
        // Without the `*`, this would pass the box itself as the `Any`.
        payload_message(&*self.0)
    }

    pub(super) fn into_inner(self) -> Box<dyn Any + Send> {
        self.0
    }
}

/// Returns the text of a panic payload, if its type is one of the two that `panic!` makes.
///
/// [`Payload`] may be `Sync` because this function reads the payload only as a `&'static str` or a
/// `String`. Do not add another type unless it is `Sync`.
pub(super) fn payload_message(payload: &(dyn Any + Send)) -> Option<String> {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        Some((*text).to_owned())
    } else {
        payload.downcast_ref::<String>().cloned()
    }
}
