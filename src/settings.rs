//! Settings that come from a file (feature `serde`).
//!
//! The two `serde` traits are written by hand: an error then names its key in every
//! format (JSON's own errors give a line only), is raised where the value stands, so
//! that a format that shows the place shows the right one, and no macro is compiled.

use crate::builder::Builder;
use crate::error::{BuildError, MAX_QUEUE, MAX_WORKERS};
use crate::stats::{Shutdown, WhenFull};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// The settings of a [`Pool`](crate::Pool) as plain values, to be loaded from TOML,
/// YAML, JSON or any other self-describing format of [`serde`].
///
/// Every key may be left out, and then has [`Builder`]'s default. Durations are
/// texts such as `"250ms"`, `"10s"` or `"1m 30s"`, or `"never"`
/// ([`Duration::MAX`]). An unknown key, a key given twice, a value of the wrong type
/// and one out of bounds are errors that name the key. Hooks are code: set them on
/// the [`Builder`] that the settings turn into.
///
/// | key | value | default |
/// |---|---|---|
/// | `max_workers` | 1 to 65,536 | 4 per core |
/// | `min_workers` | 0 to `max_workers` | 0 |
/// | `queue_capacity` | 0 to 16,777,216 | 0 |
/// | `when_full` | `"refuse"` or `"block"` | `"refuse"` |
/// | `idle_timeout` | a duration | `"10s"` |
/// | `shutdown_on_drop` | `"drain"`, `"discard"` or `"cancel"` | `"drain"` |
/// | `shutdown_timeout` | a duration | `"never"` |
/// | `thread_name` | a text without a NUL byte | `"lazypool"` |
/// | `stack_size` | bytes | the system's |
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
    /// What dropping the pool does: see [`Builder::shutdown_on_drop`].
    pub shutdown_on_drop: Shutdown,
    /// How long that may take: see [`Builder::shutdown_on_drop`].
    pub shutdown_timeout: Duration,
    /// See [`Builder::thread_name`].
    pub thread_name: String,
    /// See [`Builder::stack_size`]. `None`: that of [`std::thread`].
    pub stack_size: Option<usize>,
}

/// The defaults of [`Builder`].
impl Default for PoolSettings {
    fn default() -> Self {
        // Kept equal to `Builder::new` by a test.
        let cores = crate::park::cores();
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
        }
    }
}

impl PoolSettings {
    /// A [`Builder`] with these settings, to set hooks on or to build.
    ///
    /// ```
    /// let mut settings = lazypool::PoolSettings::default();
    /// settings.max_workers = 2;
    /// assert_eq!(settings.to_builder().build()?.max_workers(), 2);
    /// # Ok::<(), lazypool::BuildError>(())
    /// ```
    pub fn to_builder(&self) -> Builder {
        // Taken apart without `..`, so that no setting can be forgotten.
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
        } = *self;
        let builder = Builder::new()
            .max_workers(max_workers)
            .min_workers(min_workers)
            .queue_capacity(queue_capacity)
            .when_full(when_full)
            .idle_timeout(idle_timeout)
            .shutdown_on_drop(shutdown_on_drop, shutdown_timeout)
            .thread_name(thread_name);
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
                "max_workers" => s.max_workers = map.next_value_seed(checked(key, max_workers))?,
                "min_workers" => s.min_workers = map.next_value_seed(plain(key))?,
                "queue_capacity" => {
                    s.queue_capacity = map.next_value_seed(checked(key, queue_capacity))?;
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
                        map.next_value_seed(checked(key, |name: &String| thread_name(name)))?
                }
                "stack_size" => s.stack_size = map.next_value_seed(plain(key))?,
                _ => unreachable!("every key has its arm"),
            }
        }
        let (min, max) = (settings.min_workers, settings.max_workers);
        if min > max {
            return Err(A::Error::custom(BuildError::MinExceedsMax { min, max }));
        }
        Ok(settings)
    }
}

/// Reads the value of a key and checks it, and puts the key before whatever is wrong.
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
            // Some formats have put it there already.
            if text.starts_with(&format!("{key}: ")) {
                return e;
            }
            D::Error::custom(format_args!("{key}: {text}"))
        })?;
        // A `BuildError` names the key itself.
        (self.check)(&value).map_err(D::Error::custom)?;
        Ok(value)
    }
}

fn max_workers(&given: &usize) -> Result<(), BuildError> {
    let max = MAX_WORKERS;
    match given {
        0 => Err(BuildError::ZeroWorkers),
        _ if given > max => Err(BuildError::TooManyWorkers { given, max }),
        _ => Ok(()),
    }
}

fn queue_capacity(&given: &usize) -> Result<(), BuildError> {
    let max = MAX_QUEUE;
    if given > max {
        return Err(BuildError::QueueTooLong { given, max });
    }
    Ok(())
}

fn thread_name(given: &str) -> Result<(), BuildError> {
    if given.contains('\0') {
        return Err(BuildError::BadThreadName);
    }
    Ok(())
}

const NEVER: &str = "never";

/// A duration as people write it.
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
                if text == NEVER {
                    return Ok(Span(Duration::MAX));
                }
                humantime::parse_duration(text).map(Span).map_err(|e| {
                    E::custom(format_args!(
                        "{text:?} is no duration such as \"250ms\": {e}"
                    ))
                })
            }
        }

        deserializer.deserialize_str(Text)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Duration::MAX => serializer.serialize_str(NEVER),
            span => serializer.collect_str(&humantime::format_duration(span)),
        }
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
            // TOML has no word for "none".
            None => table.skip_field("stack_size")?,
            Some(bytes) => table.serialize_field("stack_size", bytes)?,
        }
        table.end()
    }
}

/// The two directions of an enum whose values are words.
macro_rules! words {
    ($enum:ident { $($word:literal => $variant:ident),+ $(,)? }) => {
        /// As a word.
        #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
        impl<'de> Deserialize<'de> for $enum {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Word;

                impl Visitor<'_> for Word {
                    type Value = $enum;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "one of {:?}", [$($word),+])
                    }

                    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<$enum, E> {
                        match word {
                            $($word => Ok($enum::$variant),)+
                            _ => Err(E::unknown_variant(word, &[$($word),+])),
                        }
                    }
                }

                deserializer.deserialize_str(Word)
            }
        }

        /// As a word.
        #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
        impl Serialize for $enum {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(match self {
                    $(Self::$variant => $word,)+
                })
            }
        }
    };
}

words!(WhenFull { "refuse" => Refuse, "block" => Block });
words!(Shutdown { "drain" => Drain, "discard" => Discard, "cancel" => Cancel });

#[cfg(test)]
mod tests {
    use super::*;

    fn every_setting() -> PoolSettings {
        PoolSettings {
            max_workers: 8,
            min_workers: 2,
            queue_capacity: 256,
            when_full: WhenFull::Block,
            idle_timeout: Duration::from_millis(250),
            shutdown_on_drop: Shutdown::Discard,
            shutdown_timeout: Duration::from_secs(90),
            thread_name: String::from("crunch"),
            stack_size: Some(1 << 20),
        }
    }

    const TOML: &str = r#"
max_workers = 8
min_workers = 2
queue_capacity = 256
when_full = "block"
idle_timeout = "250ms"
shutdown_on_drop = "discard"
shutdown_timeout = "1m 30s"
thread_name = "crunch"
stack_size = 1048576
"#;

    const YAML: &str = "
max_workers: 8
min_workers: 2
queue_capacity: 256
when_full: block
idle_timeout: 250ms
shutdown_on_drop: discard
shutdown_timeout: 1m 30s
thread_name: crunch
stack_size: 1048576
";

    const JSON: &str = r#"{
        "max_workers": 8, "min_workers": 2, "queue_capacity": 256, "when_full": "block",
        "idle_timeout": "250ms", "shutdown_on_drop": "discard", "shutdown_timeout": "1m 30s",
        "thread_name": "crunch", "stack_size": 1048576
    }"#;

    #[test]
    fn the_three_formats_say_the_same() {
        assert_eq!(
            toml::from_str::<PoolSettings>(TOML).unwrap(),
            every_setting()
        );
        assert_eq!(
            yaml_serde::from_str::<PoolSettings>(YAML).unwrap(),
            every_setting()
        );
        assert_eq!(
            serde_json::from_str::<PoolSettings>(JSON).unwrap(),
            every_setting()
        );
    }

    #[test]
    fn what_is_left_out_is_the_builders_default() {
        let empty: PoolSettings = toml::from_str("").unwrap();
        assert_eq!(empty, PoolSettings::default());
        assert_eq!(serde_json::from_str::<PoolSettings>("{}").unwrap(), empty);
        let theirs = format!("{:?}", Builder::new());
        assert_eq!(format!("{:?}", empty.to_builder()), theirs);
        assert_eq!(format!("{:?}", Builder::from(empty)), theirs);
    }

    #[test]
    fn every_setting_reaches_the_builder() {
        let by_hand = Builder::new()
            .max_workers(8)
            .min_workers(2)
            .queue_capacity(256)
            .when_full(WhenFull::Block)
            .idle_timeout(Duration::from_millis(250))
            .shutdown_on_drop(Shutdown::Discard, Duration::from_secs(90))
            .thread_name("crunch")
            .stack_size(1 << 20);
        assert_eq!(
            format!("{:?}", every_setting().to_builder()),
            format!("{by_hand:?}")
        );
        let pool = every_setting().to_builder().build().unwrap();
        assert_eq!(pool.workers().len(), 2);
    }

    #[test]
    fn settings_survive_a_round_trip_through_each_format() {
        for settings in [every_setting(), PoolSettings::default()] {
            let text = toml::to_string(&settings).unwrap();
            assert_eq!(toml::from_str::<PoolSettings>(&text).unwrap(), settings);
            let text = yaml_serde::to_string(&settings).unwrap();
            assert_eq!(
                yaml_serde::from_str::<PoolSettings>(&text).unwrap(),
                settings
            );
            let text = serde_json::to_string(&settings).unwrap();
            assert_eq!(
                serde_json::from_str::<PoolSettings>(&text).unwrap(),
                settings
            );
        }
    }

    /// The error of one key with one value (in JSON), as each of the formats gives it.
    fn errors(key: &str, value: &str) -> [String; 3] {
        let json = format!("{{\"{key}\": {value}}}");
        [
            toml::from_str::<PoolSettings>(&format!("{key} = {value}"))
                .unwrap_err()
                .to_string(),
            // JSON is YAML, but for a number that may stand for a text.
            yaml_serde::from_str::<PoolSettings>(&json)
                .map_or_else(|e| e.to_string(), |_| String::new()),
            serde_json::from_str::<PoolSettings>(&json)
                .unwrap_err()
                .to_string(),
        ]
    }

    #[test]
    fn a_bad_value_is_an_error_that_names_its_key() {
        let bad = [
            ("max_workers", "0", "max_workers is 0; allowed: 1..=65536"),
            ("max_workers", "65537", "max_workers is 65537; allowed: 1..=65536"),
            ("max_workers", "-1", "max_workers: invalid "),
            ("max_workers", "2.5", "max_workers: invalid type: floating point `2.5`"),
            ("max_workers", "\"8\"", "max_workers: invalid type: string \"8\""),
            ("min_workers", "65536", "min_workers is 65536; allowed: 0..="),
            ("min_workers", "true", "min_workers: invalid type: boolean `true`"),
            ("queue_capacity", "16777217", "queue_capacity is 16777217; allowed: 0..=16777216"),
            ("queue_capacity", "[]", "queue_capacity: invalid type: sequence"),
            ("when_full", "\"wait\"", "when_full: unknown variant `wait`, expected `refuse` or `block`"),
            ("when_full", "\"Block\"", "when_full: unknown variant `Block`"),
            ("idle_timeout", "\"10\"", "idle_timeout: \"10\" is no duration such as \"250ms\": time unit needed"),
            ("idle_timeout", "\"-1s\"", "idle_timeout: \"-1s\" is no duration"),
            ("idle_timeout", "\"\"", "idle_timeout: \"\" is no duration"),
            ("idle_timeout", "\"Never\"", "idle_timeout: \"Never\" is no duration"),
            ("shutdown_on_drop", "\"abort\"", "shutdown_on_drop: unknown variant `abort`, expected one of `drain`, `discard`, `cancel`"),
            ("shutdown_timeout", "\"5 parsecs\"", "shutdown_timeout: \"5 parsecs\" is no duration"),
            ("thread_name", "\"a\\u0000b\"", "thread_name contains a NUL byte"),
            ("stack_size", "\"2M\"", "stack_size: invalid type: string \"2M\""),
        ];
        for (key, value, expected) in bad {
            for error in errors(key, value) {
                assert!(error.contains(expected), "{key} = {value}: {error}");
                assert!(!error.contains(&format!("{key}: {key}: ")), "{error}");
            }
        }
    }

    #[test]
    fn a_number_is_no_text_where_texts_are_quoted() {
        let bad = [
            (
                "when_full",
                "1",
                "when_full: invalid type: integer `1`, expected one of [\"refuse\", \"block\"]",
            ),
            (
                "idle_timeout",
                "10",
                "idle_timeout: invalid type: integer `10`, expected a duration such as \"250ms\"",
            ),
            ("thread_name", "7", "thread_name: invalid type: integer `7`"),
        ];
        for (key, value, expected) in bad {
            let [toml, _, json] = errors(key, value);
            assert!(toml.contains(expected), "{toml}");
            assert!(json.contains(expected), "{json}");
        }
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_it_and_those_there_are() {
        for error in errors("max_worker", "8") {
            assert!(error.contains("unknown field `max_worker`"), "{error}");
            for key in KEYS {
                assert!(error.contains(key), "{error}");
            }
        }
    }

    #[test]
    fn a_key_given_twice_is_an_error() {
        let twice = r#"{"max_workers": 1, "max_workers": 2}"#;
        let error = serde_json::from_str::<PoolSettings>(twice).unwrap_err();
        assert!(error.to_string().contains("duplicate field `max_workers`"));
    }

    #[test]
    fn what_is_no_table_is_an_error() {
        let error = serde_json::from_str::<PoolSettings>("[8]").unwrap_err();
        assert!(error.to_string().contains("a table of a pool's settings"));
    }

    #[test]
    fn an_error_shows_its_place() {
        let text = "queue_capacity = 1\nmax_workers = 0\n";
        let error = toml::from_str::<PoolSettings>(text).unwrap_err();
        assert_eq!(&text[error.span().unwrap()], "0");
        let text = "queue_capacity = 1\nidle_timeout = \"soon\"\n";
        let error = toml::from_str::<PoolSettings>(text).unwrap_err();
        assert_eq!(&text[error.span().unwrap()], "\"soon\"");
        let error = serde_json::from_str::<PoolSettings>("{\n\"max_workers\": -1\n}").unwrap_err();
        assert_eq!(error.line(), 2);
        assert_eq!(error.to_string().matches(" at line ").count(), 1, "{error}");
    }

    #[test]
    fn never_and_zero_are_durations() {
        let text = "idle_timeout = \"0s\"\nshutdown_timeout = \"never\"";
        let settings: PoolSettings = toml::from_str(text).unwrap();
        assert_eq!(settings.idle_timeout, Duration::ZERO);
        assert_eq!(settings.shutdown_timeout, Duration::MAX);
    }
}
