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
use std::marker::PhantomData;
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
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
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
/// # Ok(()) }
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

const KEYS: &[&str] = &[
    "max_workers",
    "min_workers",
    "queue_capacity",
    "when_full",
    "idle_timeout",
    "shutdown_on_drop",
    "shutdown_timeout",
    "thread_name",
    "stack_size",
    "track_ages",
];

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
            let s = &mut settings;
            match key {
                "max_workers" => {
                    s.max_workers = map.next_value_seed(checked(key, |&n| check::max_workers(n)))?
                }
                "min_workers" => s.min_workers = map.next_value_seed(plain(key))?,
                "queue_capacity" => {
                    s.queue_capacity =
                        map.next_value_seed(checked(key, |&n| check::queue_capacity(n)))?;
                }
                "when_full" => s.when_full = map.next_value_seed(plain(key))?,
                "idle_timeout" => {
                    s.idle_timeout = map.next_value_seed(plain(key)).map(Span::get)?
                }
                "shutdown_on_drop" => s.shutdown_on_drop = map.next_value_seed(plain(key))?,
                "shutdown_timeout" => {
                    s.shutdown_timeout = map.next_value_seed(plain(key)).map(Span::get)?;
                }
                "thread_name" => {
                    s.thread_name =
                        map.next_value_seed(checked(key, |name: &String| check::thread_name(name)))?
                }
                "stack_size" => {
                    s.stack_size = map.next_value_seed(checked(key, |bytes: &Option<usize>| {
                        bytes.map_or(Ok(()), check::stack_size)
                    }))?;
                }
                "track_ages" => s.track_ages = map.next_value_seed(plain(key))?,
                _ => unreachable!("every key has its arm"),
            }
        }
        check::min_workers(settings.min_workers, settings.max_workers).map_err(A::Error::custom)?;
        Ok(settings)
    }
}

/// A seed that reads the value of a key and checks it. Every error of the seed names the key.
struct Value<T> {
    key: &'static str,
    check: fn(&T) -> Result<(), BuildError>,
    value: PhantomData<T>,
}

fn checked<T>(key: &'static str, check: fn(&T) -> Result<(), BuildError>) -> Value<T> {
    Value {
        key,
        check,
        value: PhantomData,
    }
}

fn plain<T>(key: &'static str) -> Value<T> {
    checked(key, |_| Ok(()))
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

impl Span {
    fn get(self) -> Duration {
        self.0
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"250ms\", or \"never\"")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Span, E> {
                duration::parse(text).map(Span).map_err(|why| {
                    E::custom(format_args!(
                        "{text:?} is not a duration such as \"250ms\": {why}"
                    ))
                })
            }
        }

        deserializer.deserialize_str(Text)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&duration::Text(self.0))
    }
}

impl Serialize for PoolSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let len = KEYS.len() - usize::from(self.stack_size.is_none());
        let mut table = serializer.serialize_struct("PoolSettings", len)?;
        table.serialize_field("max_workers", &self.max_workers)?;
        table.serialize_field("min_workers", &self.min_workers)?;
        table.serialize_field("queue_capacity", &self.queue_capacity)?;
        table.serialize_field("when_full", &self.when_full)?;
        table.serialize_field("idle_timeout", &Span(self.idle_timeout))?;
        table.serialize_field("shutdown_on_drop", &self.shutdown_on_drop)?;
        table.serialize_field("shutdown_timeout", &Span(self.shutdown_timeout))?;
        table.serialize_field("thread_name", &self.thread_name)?;
        match &self.stack_size {
            // TOML has no value for "none", so the key is left out.
            None => table.skip_field("stack_size")?,
            Some(bytes) => table.serialize_field("stack_size", bytes)?,
        }
        table.serialize_field("track_ages", &self.track_ages)?;
        table.end()
    }
}

/// Implements both `serde` traits for an enum, using its `FromStr` and its `Display`.
macro_rules! words {
    ($enum:ident, $expected:literal) => {
        /// Reads the text that `FromStr` accepts.
        #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
        impl<'de> Deserialize<'de> for $enum {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Word;

                impl Visitor<'_> for Word {
                    type Value = $enum;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<$enum, E> {
                        word.parse().map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Word)
            }
        }

        /// Writes the word that `Display` writes.
        #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
        impl Serialize for $enum {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

words!(WhenFull, "refuse, block, or block:<duration>");
words!(Shutdown, "drain, discard or cancel");

#[cfg(test)]
mod tests;
