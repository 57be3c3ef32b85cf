//! The options of a [`Submitter`](crate::Submitter), as methods of the types that make one.

/// Writes a method for each option. `$it` is the name of a value of the type in the examples, and
/// `$kind` says what the value is. `$setup` is the line of the examples that makes the value from
/// `pool`, if the value is not the pool itself.
///
/// Each method forwards to the method of the same name of `Submitter`, which says what the option
/// does.
macro_rules! options {
    ($type:ty, $kind:literal, $it:literal $(, $setup:literal)?) => {
        /// Methods that return a [`Submitter`](crate::Submitter).
        impl $type {
            #[doc = concat!(
                "Returns a [`Submitter`](crate::Submitter) to this ", $kind,
                " that gives each of its tasks this label."
            )]
            ///
            /// [`workers`](crate::Pool::workers) and
            /// [`Builder::on_panic`](crate::Builder::on_panic) show the label, and the task itself
            /// can read it ([`task::label`](crate::task::label)). With `serve`, a label [takes 16
            /// bytes](crate::docs::guarantees#closures-without-an-allocation) of the space that
            /// holds a closure without an allocation.
            ///
            /// ```
            /// let pool = lazypool::Pool::new(1)?;
            $(#[doc = $setup])?
            #[doc = concat!("let parsing = ", $it, ".labeled(\"parse\");")]
            /// let label = parsing.do_with_deadline(lazypool::task::label, std::time::Duration::MAX);
            /// assert_eq!(label?, Some("parse"));
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            #[must_use]
            #[doc(alias = "labelled")]
            pub fn labeled(&self, label: &'static str) -> $crate::Submitter<'_> {
                self.submitter().labeled(label)
            }

            #[doc = concat!(
                "Returns a [`Submitter`](crate::Submitter) to this ", $kind,
                " that uses this policy if there is no space."
            )]
            /// The policy applies instead of that of
            /// [`Builder::when_full`](crate::Builder::when_full). See
            /// [`Submitter::when_full`](crate::Submitter::when_full).
            ///
            /// ```
            /// let pool = lazypool::Pool::new(1)?; // refuses when it is full
            $(#[doc = $setup])?
            #[doc = concat!("let batch = ", $it, ".when_full(lazypool::WhenFull::Block); // waits instead")]
            /// batch.serve(|| println!("one"))?;
            /// batch.serve(|| println!("two"))?;
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            #[must_use]
            pub fn when_full(&self, policy: $crate::WhenFull) -> $crate::Submitter<'_> {
                self.submitter().when_full(policy)
            }

            #[doc = concat!(
                "Returns a [`Submitter`](crate::Submitter) to this ", $kind,
                " whose tasks have a deadline, `d` after their submission."
            )]
            /// A task is dropped if no worker has started it by then. See
            /// [`Submitter::with_deadline`](crate::Submitter::with_deadline).
            ///
            /// ```
            /// let pool = lazypool::Pool::new(1)?;
            $(#[doc = $setup])?
            #[doc = concat!("let soon = ", $it, ".with_deadline(std::time::Duration::from_secs(1));")]
            /// soon.serve(|| println!("{:?} left", lazypool::task::remaining()))?;
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            #[must_use]
            pub fn with_deadline(&self, d: std::time::Duration) -> $crate::Submitter<'_> {
                self.submitter().with_deadline(d)
            }

            #[doc = concat!(
                "Returns a [`Submitter`](crate::Submitter) to this ", $kind,
                " whose tasks have their deadline at the moment `at`."
            )]
            /// See [`Submitter::with_deadline_at`](crate::Submitter::with_deadline_at).
            ///
            /// ```
            /// use std::time::{Duration, Instant};
            /// let pool = lazypool::Pool::new(1)?;
            $(#[doc = $setup])?
            /// let at = Instant::now() + Duration::from_secs(5); // the deadline of a whole request
            #[doc = concat!("let request = ", $it, ".with_deadline_at(at);")]
            /// request.serve(move || assert_eq!(lazypool::task::deadline(), Some(at)))?;
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            #[must_use]
            pub fn with_deadline_at(&self, at: std::time::Instant) -> $crate::Submitter<'_> {
                self.submitter().with_deadline_at(at)
            }

            #[doc = concat!(
                "Returns a [`Submitter`](crate::Submitter) to this ", $kind,
                " whose tasks have a deadline `d` after their start."
            )]
            /// See [`Submitter::run_limit`](crate::Submitter::run_limit).
            ///
            /// ```
            /// let pool = lazypool::Pool::new(1)?;
            $(#[doc = $setup])?
            #[doc = concat!("let brief = ", $it, ".run_limit(std::time::Duration::from_millis(50));")]
            /// brief.serve(|| while !lazypool::task::is_cancelled() {})?;
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            #[must_use]
            pub fn run_limit(&self, d: std::time::Duration) -> $crate::Submitter<'_> {
                self.submitter().run_limit(d)
            }

            #[doc = concat!(
                "Returns a [`Submitter`](crate::Submitter) to this ", $kind,
                " that starts a task only if at least `d` is left until the task's deadline."
            )]
            /// See [`Submitter::min_remaining`](crate::Submitter::min_remaining).
            ///
            /// ```
            /// use std::time::Duration;
            /// let pool = lazypool::Pool::builder().max_workers(1).queue_capacity(64).build()?;
            $(#[doc = $setup])?
            #[doc = concat!(
                "let queries = ", $it, ".min_remaining(Duration::from_millis(20)); ",
                "// a query takes about 20 ms"
            )]
            /// assert_eq!(queries.do_with_deadline(|| 3, Duration::from_secs(5))?, 3);
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            #[must_use]
            pub fn min_remaining(&self, d: std::time::Duration) -> $crate::Submitter<'_> {
                self.submitter().min_remaining(d)
            }
        }
    };
}

pub(crate) use options;
