//! The job: what it says, and the blocking work. This file is yours to change.

use lazypool::task;
use serde::{Deserialize, Serialize};
use std::{thread, time::Duration};

/// The kind of job, with its version. A worker takes only kinds that it knows, so jobs of a new
/// version wait for the new workers, whatever the order in which the processes are replaced.
pub const KIND: &str = "job.v1";

/// The bytes of a job at most, as JSON. What is larger belongs into a file or a table, and the job
/// says where it is.
pub const MAX_BYTES: usize = 64 * 1024;

/// A job, as it is in the queue. A change that an older worker cannot read needs a new [`KIND`].
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The idempotency key: the effects of two jobs with one key happen once.
    pub key: String,
    /// How long the work takes, in milliseconds.
    pub ms: u64,
    /// What goes wrong with it, for the demo and the tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// What a job may do to its process.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// It returns an error.
    Fail,
    /// It panics.
    Panic,
    /// It ends the process.
    Abort,
    /// It never ends, and never looks whether it should.
    Hang,
}

impl Job {
    /// Returns the job as JSON, or the reason why no queue should take it.
    pub fn to_json(&self) -> Result<String, String> {
        let json = serde_json::to_string(self).map_err(|error| error.to_string())?;
        match (json.len(), self.key.len()) {
            (..=MAX_BYTES, 1..=200) => Ok(json),
            (..=MAX_BYTES, bytes) => Err(format!("a key of {bytes} bytes: 1 to 200")),
            (bytes, _) => Err(format!("a job of {bytes} bytes: at most {MAX_BYTES}")),
        }
    }

    /// Reads a job that any program may have added, or returns what is wrong with it.
    pub fn from_json(json: &serde_json::Value) -> Result<Self, String> {
        let bytes = json.to_string().len();
        if bytes > MAX_BYTES {
            return Err(format!("a job of {bytes} bytes: at most {MAX_BYTES}"));
        }
        let job = Self::deserialize(json).map_err(|error| error.to_string())?;
        job.to_json()?;
        Ok(job)
    }

    /// Does the work on a thread of the pool, where it may block. Returns what is to be stored.
    ///
    /// An effect outside the database (a mail, a payment) takes place here. It may happen twice, so
    /// pass `key` along, as the idempotency key of the service that is called.
    pub fn perform(&self) -> Result<String, String> {
        for _ in 0..self.ms.div_ceil(10) {
            if task::is_cancelled() {
                return Err(String::from("cancelled"));
            }
            thread::sleep(Duration::from_millis(self.ms.min(10)));
        }
        match self.fault {
            None => Ok(format!("{} is done", self.key)),
            Some(Fault::Fail) => Err(String::from("the mail server is down")),
            Some(Fault::Panic) => panic!("a bug"),
            Some(Fault::Abort) => std::process::abort(),
            Some(Fault::Hang) => loop {
                thread::park();
            },
        }
    }
}
