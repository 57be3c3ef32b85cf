//! The outcomes of jobs: Redis's record of them, and their effects.

use crate::queue::{Job, Settings};
use redis::{cmd, RedisResult};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The state of each job, and the consumers that did its work, by key.
#[derive(Debug, Default)]
pub struct Ledger {
    pub done: BTreeSet<String>,
    pub dead: BTreeMap<String, String>,
    pub effects: BTreeMap<String, Vec<String>>,
    /// The number of entries of the stream: jobs that wait, are pending, or are to be tried again.
    pub unsettled: usize,
}

impl Ledger {
    /// Reads the ledger. `effects` is the file that `jobs work --effects` has written.
    pub fn read(s: &Settings, effects: &Path) -> RedisResult<Self> {
        let (mut queue, mut ledger) = (s.open()?, Self::default());
        // Read the stream first, because a job goes from there to the other places.
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

    /// Returns the jobs that are neither done nor dead, and those that are done without an effect.
    pub fn lost<'a>(&'a self, jobs: &'a [Job]) -> Vec<&'a String> {
        let is = |key: &String| self.done.contains(key) || self.dead.contains_key(key);
        let gone = jobs.iter().map(|job| &job.key).filter(|key| !is(key));
        let undone = |key: &&String| !self.effects.contains_key(*key);
        gone.chain(self.done.iter().filter(undone)).collect()
    }

    /// Returns `true` if exactly the jobs that cannot succeed are dead. Those of `jobs` that cannot
    /// succeed must be sorted by key.
    pub fn is_right(&self, jobs: &[Job]) -> bool {
        let bad = |job: &&Job| ["panic", "hang", "juggle"].contains(&job.kind.as_str());
        jobs.iter().filter(bad).map(|job| &job.key).eq(self.dead.keys())
    }

    /// Returns the keys whose work was done more than once.
    pub fn twice(&self) -> Vec<&String> {
        let twice = self.effects.iter().filter(|(_, consumers)| consumers.len() > 1);
        twice.map(|(key, _)| key).collect()
    }
}
