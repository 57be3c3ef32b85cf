//! What became of jobs: Redis's account beside that of the jobs' effects.

use crate::queue::{text, Entries, Place};
use redis::RedisResult;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// By key: where each job is, and which consumers did its work.
#[derive(Debug, Default)]
pub struct Ledger {
    pub done: BTreeSet<String>,
    pub dead: BTreeMap<String, String>,
    pub effects: BTreeMap<String, Vec<String>>,
    /// Entries of the stream (waiting or pending), and retries that are not due.
    pub unsettled: usize,
}

impl Ledger {
    /// Reads it. `effects` is the file that `jobs work --effects` has written.
    pub fn read(place: &Place, effects: &Path) -> RedisResult<Self> {
        let [stream, retry, dead, done] = &place.keys();
        // At one moment: a job goes from one to the other.
        let mut at_once = redis::pipe();
        at_once
            .atomic()
            .cmd("SMEMBERS")
            .arg(done)
            .cmd("XLEN")
            .arg(stream);
        at_once
            .cmd("ZCARD")
            .arg(retry)
            .cmd("XRANGE")
            .arg(&[dead, "-", "+"]);
        let (done, waiting, later, letters): (_, usize, usize, Entries) =
            at_once.query(&mut place.open()?)?;
        let unsettled = waiting + later;
        let mut ledger = Self {
            done,
            unsettled,
            ..Self::default()
        };
        for (_, letter) in letters {
            let [key, why] = ["key", "reason"].map(|name| text(&letter, name, ""));
            ledger.dead.insert(key, why);
        }
        let text = std::fs::read_to_string(effects).unwrap_or_default();
        for (key, consumer) in text.lines().filter_map(|line| line.split_once(' ')) {
            let consumers = ledger.effects.entry(key.to_owned()).or_default();
            consumers.push(consumer.to_owned());
        }
        Ok(ledger)
    }

    /// Jobs of these that nobody knows of, and those that are done without an effect.
    pub fn lost<'a>(&'a self, keys: impl IntoIterator<Item = &'a String>) -> Vec<&'a String> {
        let gone = |key: &&String| !self.done.contains(*key) && !self.dead.contains_key(*key);
        let undone = self
            .done
            .iter()
            .filter(|key| !self.effects.contains_key(*key));
        keys.into_iter().filter(gone).chain(undone).collect()
    }

    /// Jobs whose work was done more than once, and by whom.
    pub fn twice(&self) -> impl Iterator<Item = (&String, &Vec<String>)> {
        self.effects
            .iter()
            .filter(|(_, consumers)| consumers.len() > 1)
    }

    /// How many dead letters there are of each reason.
    pub fn reasons(&self) -> BTreeMap<&str, usize> {
        let mut reasons = BTreeMap::new();
        for why in self.dead.values() {
            let why = why.split(':').next().unwrap_or_default();
            *reasons.entry(why).or_default() += 1;
        }
        reasons
    }
}
