//! The two wrappers that make errors `Sync`.
//!
//! They have a module of their own so that the privacy of their fields, which both safety arguments rest
//! on, holds against the rest of the errors too.

use std::any::Any;

/// A closure on its way back: moved in, moved out, and never lent in between.
pub(super) struct Closure<F>(F);

// SAFETY: sharing a `Closure<F>` shares no `F`. The field is private to this module, no method takes
// `&self` or `&mut self`, and there is no trait implementation, so `&Closure<F>` reaches nothing of
// the `F` inside. Reaching it takes the `Closure<F>` by value, and moving that to another thread still
// asks for `F: Send`, as `Send` is left to the compiler.
unsafe impl<F> Sync for Closure<F> {}

impl<F> Closure<F> {
    pub(super) const fn new(closure: F) -> Self {
        Self(closure)
    }

    pub(super) fn into_inner(self) -> F {
        self.0
    }
}

/// A caught panic payload: moved in and out, and in between only its text can be read.
pub(super) struct Payload(Box<dyn Any + Send>);

// SAFETY: the payload may be of a type that is not `Sync`, so nothing of such a type may be reached
// through `&Payload`. The field is private to this module and the only method that takes `&self` is
// `message`. It asks the payload for its `TypeId`, which comes from the vtable and reads none of the
// payload's data, and goes on to read the data only as a `&'static str` or a `String`, both `Sync`.
// All else takes the `Payload` by value, and the payload is `Send`.
unsafe impl Sync for Payload {}

impl Payload {
    pub(super) const fn new(payload: Box<dyn Any + Send>) -> Self {
        Self(payload)
    }

    pub(super) fn message(&self) -> Option<String> {
        // `&*`: a plain `&self.0` would pass the box itself as the `Any`.
        payload_message(&*self.0)
    }

    pub(super) fn into_inner(self) -> Box<dyn Any + Send> {
        self.0
    }
}

/// The text of a panic payload, if it is one of the two types that `panic!` makes.
///
/// [`Payload`] is `Sync` because this reads the payload as nothing but a `&'static str` or a `String`.
/// A further type may be added only if it is `Sync`.
pub(super) fn payload_message(payload: &(dyn Any + Send)) -> Option<String> {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        Some((*text).to_owned())
    } else {
        payload.downcast_ref::<String>().cloned()
    }
}
