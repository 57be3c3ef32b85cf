//! What became of jobs: Redis's account beside that of the jobs' effects.

use crate::queue::{Job, Settings};
use redis::{cmd, RedisResult};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// By key: where each job is, and which consumers did its work.
#[derive(Debug, Default)]
pub struct Ledger {
    pub done: BTreeSet<String>,
    pub dead: BTreeMap<String, String>,
    pub effects: BTreeMap<String, Vec<String>>,
    /// Entries of the stream: waiting, pending, or to be tried again.
    pub unsettled: usize,
}

impl Ledger {
    /// Reads it. `effects` is the file that `jobs work --effects` has written.
    pub fn read(s: &Settings, effects: &Path) -> RedisResult<Self> {
        let (mut queue, mut ledger) = (s.open()?, Self::default());
        // The stream first: a job goes from there to the others.
        ledger.unsettled = cmd("XLEN").arg(&s.stream).query(&mut queue.con)?;
        let done = (&s.redis_keys()[3], 0, -1);
        ledger.done = cmd("ZRANGE").arg(done).query(&mut queue.con)?;
        queue.letters("list", ("-", "+"), |(_, key, _, why)| {
            let [key, why] = [key, why].map(|text| String::from_utf8_lossy(&text).into_owned());
            ledger.dead.insert(key, why);
        })?;
        let text = std::fs::read_to_string(effects).unwrap_or_default();
        for (key, consumer) in text.lines().filter_map(|line| line.split_once(' ')) {
            let consumers = ledger.effects.entry(key.to_owned()).or_default();
            consumers.push(consumer.to_owned());
        }
        Ok(ledger)
    }

    /// Returns those of these jobs that are nowhere, and those that are done without an effect.
    pub fn lost<'a>(&'a self, jobs: &'a [Job]) -> Vec<&'a String> {
        let is = |key: &String| self.done.contains(key) || self.dead.contains_key(key);
        let gone = jobs.iter().map(|job| &job.key).filter(|key| !is(key));
        let undone = |key: &&String| !self.effects.contains_key(*key);
        gone.chain(self.done.iter().filter(undone)).collect()
    }

    /// Returns the keys whose work was done more than once.
    pub fn twice(&self) -> Vec<&String> {
        let effects = self.effects.iter();
        let twice = effects.filter(|(_, consumers)| consumers.len() > 1);
        twice.map(|(key, _)| key).collect()
    }
}
