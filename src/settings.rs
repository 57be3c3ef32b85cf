//! Settings that come from a file (feature `serde`).
//!
//! The two `serde` traits are implemented by hand, for three reasons. Errors name their key in
//! every format, whereas JSON's own errors give only a line. Each value is checked as it is read,
//! so a format that reports positions reports the position of the bad value. And no derive macro
//! has to be compiled.

use crate::builder::{check, Builder};
use crate::duration;
use crate::error::{BuildError, MAX_WORKERS};
use crate::stats::{Shutdown, WhenFull};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The settings of a [`Pool`](crate::Pool) as plain values, which [`serde`] can load from TOML,
/// YAML, JSON or any other self-describing format.
///
/// A key that is left out has [`Builder`]'s default. A duration is a text such as `"250ms"`,
/// `"10s"` or `"1m 30s"`, with the units `ns`, `us`, `ms`, `s`, `m`, `h` and `d`, or `"never"`
/// ([`Duration::MAX`]). An unknown key, a repeated key, a value of the wrong type and a value out
/// of bounds are errors, and each error names the key. A file cannot contain hooks, which are code.
/// Set them on the [`Builder`] that [`to_builder`](PoolSettings::to_builder) returns.
///
/// | key | value | default |
/// |---|---|---|
/// | `max_workers` | 1 to 65,536 | 4 per core |
/// | `min_workers` | 0 to `max_workers` | 0 |
/// | `queue_capacity` | 0 to 16,777,216 | 0 |
/// | `when_full` | `"refuse"`, `"block"`, or `"block:"` and a duration above zero, such as `"block:250ms"` | `"refuse"` |
/// | `idle_timeout` | a duration; `"0s"`: retire as soon as idle | `"10s"` |
/// | `shutdown_on_drop` | `"drain"`, `"discard"` or `"cancel"` | `"drain"` |
/// | `shutdown_timeout` | a duration | `"never"` |
/// | `thread_name` | a text without a NUL byte, not empty | `"lazypool"` |
/// | `stack_size` | bytes, 16,384 or more | that of `std::thread` |
/// | `track_ages` | `true` or `false` | `false` |
///
/// ```
/// use lazypool::PoolSettings;
/// use std::time::Duration;
///
/// let settings: PoolSettings = toml::from_str(
///     r#"
///     max_workers = 8
///     queue_capacity = 256
///     idle_timeout = "250ms"
///     "#,
/// )?;
/// assert_eq!(settings.idle_timeout, Duration::from_millis(250));
///
/// let pool = settings
///     .to_builder()
///     .on_panic(|p| eprintln!("a task panicked: {:?}", p.message()))
///     .build()?;
/// assert_eq!((pool.max_workers(), pool.queue_capacity()), (8, 256));
///
/// let typo = toml::from_str::<PoolSettings>("max_worker = 8").unwrap_err();
/// assert!(typo.to_string().contains("unknown field `max_worker`"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolSettings {
    /// See [`Builder::max_workers`].
    pub max_workers: usize,
    /// See [`Builder::min_workers`].
    pub min_workers: usize,
    /// See [`Builder::queue_capacity`].
    pub queue_capacity: usize,
    /// See [`Builder::when_full`].
    pub when_full: WhenFull,
    /// See [`Builder::idle_timeout`].
    pub idle_timeout: Duration,
    /// The mode of the shutdown that dropping the pool begins. See [`Builder::shutdown_on_drop`].
    pub shutdown_on_drop: Shutdown,
    /// The longest time that dropping the pool waits. See [`Builder::shutdown_on_drop`].
    pub shutdown_timeout: Duration,
    /// See [`Builder::thread_name`].
    pub thread_name: String,
    /// The size in bytes. `None` means the default of [`std::thread`]. See [`Builder::stack_size`].
    pub stack_size: Option<usize>,
    /// See [`Builder::track_ages`].
    pub track_ages: bool,
}

/// The defaults of [`Builder`].
impl Default for PoolSettings {
    fn default() -> Self {
        // A test checks that these values are equal to those of `Builder::new`.
        let cores = crate::parts::backoff::cores();
        Self {
            max_workers: (4 * cores).min(MAX_WORKERS),
            min_workers: 0,
            queue_capacity: 0,
            when_full: WhenFull::Refuse,
            idle_timeout: Duration::from_secs(10),
            shutdown_on_drop: Shutdown::Drain,
            shutdown_timeout: Duration::MAX,
            thread_name: String::from("lazypool"),
            stack_size: None,
            track_ages: false,
        }
    }
}

impl PoolSettings {
    /// Returns a [`Builder`] with these settings.
    ///
    /// ```
    /// let mut settings = lazypool::PoolSettings::default();
    /// settings.max_workers = 2;
    /// assert_eq!(settings.to_builder().build()?.max_workers(), 2);
    /// # Ok::<(), lazypool::BuildError>(())
    /// ```
    pub fn to_builder(&self) -> Builder {
        // There is no `..` here, so that no setting can be forgotten.
        let Self {
            max_workers,
            min_workers,
            queue_capacity,
            when_full,
            idle_timeout,
            shutdown_on_drop,
            shutdown_timeout,
            ref thread_name,
            stack_size,
            track_ages,
        } = *self;
        let builder = Builder::new()
            .max_workers(max_workers)
            .min_workers(min_workers)
            .queue_capacity(queue_capacity)
            .when_full(when_full)
            .idle_timeout(idle_timeout)
            .shutdown_on_drop(shutdown_on_drop, shutdown_timeout)
            .thread_name(thread_name)
            .track_ages(track_ages);
        match stack_size {
            Some(bytes) => builder.stack_size(bytes),
            None => builder,
        }
    }
}

impl From<PoolSettings> for Builder {
    fn from(settings: PoolSettings) -> Self {
        settings.to_builder()
    }
}

/// Implements what has a line for every setting. The given type is the one that is read and
/// written.
macro_rules! settings {
    ($($key:ident: $type:ty, $check:expr;)+) => {
        const KEYS: &[&str] = &[$(stringify!($key)),+];

        /// Reads the value of a key.
        fn read<'de, A: MapAccess<'de>>(
            settings: &mut PoolSettings,
            key: &'static str,
            map: &mut A,
        ) -> Result<(), A::Error> {
            $(if key == stringify!($key) {
                let seed = Value::<$type> { key, check: $check };
                settings.$key = map.next_value_seed(seed)?.into();
            })+
            Ok(())
        }

        impl Serialize for PoolSettings {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                // There is no `..` here, so that no setting can be forgotten.
                let Self { $($key),+ } = self.clone();
                // TOML has no value for "none", so the key is left out.
                let is_none = self.stack_size.is_none();
                let len = KEYS.len() - usize::from(is_none);
                let mut table = serializer.serialize_struct("PoolSettings", len)?;
                $(if is_none && stringify!($key) == "stack_size" {
                    table.skip_field("stack_size")?;
                } else {
                    table.serialize_field(stringify!($key), &<$type>::from($key))?;
                })+
                table.end()
            }
        }
    };
}

settings! {
    max_workers: usize, |&n| check::max_workers(n);
    min_workers: usize, |_| Ok(()); // checked once `max_workers` is known
    queue_capacity: usize, |&n| check::queue_capacity(n);
    when_full: WhenFull, |_| Ok(());
    idle_timeout: Span, |_| Ok(());
    shutdown_on_drop: Shutdown, |_| Ok(());
    shutdown_timeout: Span, |_| Ok(());
    thread_name: String, |name| check::thread_name(name);
    stack_size: Option<usize>, |bytes| bytes.map_or(Ok(()), check::stack_size);
    track_ages: bool, |_| Ok(());
}

impl<'de> Deserialize<'de> for PoolSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("PoolSettings", KEYS, Table)
    }
}

struct Table;

impl<'de> Visitor<'de> for Table {
    type Value = PoolSettings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of a pool's settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PoolSettings, A::Error> {
        let mut settings = PoolSettings::default();
        let mut seen = Vec::with_capacity(KEYS.len());
        while let Some(given) = map.next_key::<String>()? {
            let Some(&key) = KEYS.iter().find(|&&key| key == given) else {
                return Err(A::Error::unknown_field(&given, KEYS));
            };
            if seen.contains(&key) {
                return Err(A::Error::duplicate_field(key));
            }
            seen.push(key);
            read(&mut settings, key, &mut map)?;
        }
        check::min_workers(settings.min_workers, settings.max_workers).map_err(A::Error::custom)?;
        Ok(settings)
    }
}

/// A seed that reads the value of a key and checks it. Every error of the seed names the key.
struct Value<T> {
    key: &'static str,
    check: fn(&T) -> Result<(), BuildError>,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Value<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        let value = T::deserialize(deserializer).map_err(|e| {
            let (key, text) = (self.key, e.to_string());
            // Some formats have already added the key to the error.
            if text.starts_with(&format!("{key}: ")) {
                return e;
            }
            D::Error::custom(format_args!("{key}: {text}"))
        })?;
        // A `BuildError` already names the key.
        (self.check)(&value).map_err(D::Error::custom)?;
        Ok(value)
    }
}

/// A duration in the notation of the crate's settings.
struct Span(Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let says = |why| format!("{text:?} is not a duration such as \"250ms\": {why}");
        duration::parse(text).map(Self).map_err(says)
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        span.0
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        duration::Text(self.0).fmt(f)
    }
}

/// Implements both `serde` traits for a type, using its `FromStr` and its `Display`.
macro_rules! words {
    ($type:ident, $expected:literal) => {
        /// Reads the text that `FromStr` accepts.
        #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Word;

                impl Visitor<'_> for Word {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<$type, E> {
                        word.parse().map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Word)
            }
        }

        /// Writes the word that `Display` writes.
        #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

words!(WhenFull, "refuse, block, or block:<duration>");
words!(Shutdown, "drain, discard or cancel");
words!(Span, "a duration such as \"250ms\", or \"never\"");

#[cfg(test)]
mod tests;
