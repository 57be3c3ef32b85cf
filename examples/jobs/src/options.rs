//! The command line of `jobs`, and the defaults of its settings.

use crate::queue::Settings;
use std::collections::HashMap;
use std::fmt::Display;
use std::process::{exit, id};
use std::str::FromStr;
use std::time::Duration;

impl Default for Settings {
    fn default() -> Self {
        Options::default().settings(4)
    }
}

/// The options that have not been read yet, by name.
#[derive(Debug, Default)]
pub struct Options(pub HashMap<String, String>);

/// Ends the process with a message.
pub fn end(code: i32, why: impl Display) -> ! {
    eprintln!("jobs: {why}");
    exit(code)
}

impl Options {
    pub fn read(words: &[String]) -> Self {
        let pair = |pair: &[String]| match pair {
            [name, value] if name.starts_with("--") => (name[2..].to_owned(), value.clone()),
            _ => end(2, format!("{pair:?}: options are written --name value")),
        };
        Self(words.chunks(2).map(pair).collect())
    }

    pub fn get<T: FromStr<Err: Display>>(&mut self, name: &str, default: T) -> T {
        let Some(text) = self.0.remove(name) else {
            return default;
        };
        let value = text.parse();
        value.unwrap_or_else(|e| end(2, format!("--{name} {text}: {e}")))
    }

    pub fn ms(&mut self, name: &str, default: u32) -> Duration {
        Duration::from_millis(self.get(name, default).into())
    }

    pub fn settings(&mut self, workers: usize) -> Settings {
        let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
        Settings {
            url: self.get("redis", "redis://127.0.0.1:6379/".to_owned()),
            stream: self.get("stream", "jobs".to_owned()),
            group: self.get("group", "workers".to_owned()),
            consumer: self.get("name", format!("{}-{}", host.trim(), id())),
            visibility: self.ms("visibility-ms", 15_000),
            deaths: self.get("deaths", 3),
            attempts: self.get("attempts", 3),
            backoff: self.ms("backoff-ms", 200),
            keep: self.ms("done-ms", 86_400_000),
            keys: self.get("done-keys", 1_000_000),
            deadline: self.ms("deadline-ms", 5_000),
            lost: self.get("lost", workers.div_ceil(2)),
            grace: self.ms("grace-ms", 5_000),
            bytes: self.get("bytes", 256 << 20),
        }
    }

    pub fn none_left(&self) {
        if let Some(name) = self.0.keys().next() {
            end(2, format!("unknown option --{name}; see --help"));
        }
    }
}
