//! The operator's commands. There is no need to copy them: `jobs status` and `jobs dead` work for
//! any stream of jobs.

use crate::queue::{Queue, Settings};
use redis::{cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, ToRedisArgs};

/// The numbers of entries in the stream (with the retries), of retries, of dead letters and of done
/// keys, and the number of pending jobs of each consumer that has any.
pub type Status = (usize, usize, usize, usize, Vec<(String, usize)>);

/// A dead letter: its id, and the key, kind and reason, shortened.
pub type Letter = (String, Vec<u8>, Vec<u8>, Vec<u8>);

impl Queue {
    fn ask<T: redis::FromRedisValue>(
        &mut self,
        step: &str,
        args: impl ToRedisArgs,
    ) -> RedisResult<T> {
        let (s, script, mut call) = (&self.s, include_str!("admin.lua"), cmd("EVAL"));
        call.arg((script, 4, &s.redis_keys(), step, &s.group, args));
        call.query(&mut self.con)
    }

    pub fn status(&mut self) -> RedisResult<Status> {
        self.ask("status", "")
    }

    /// Applies `list`, `send` (again) or `delete` to the dead letters from one id to another. Calls
    /// `tell` for each.
    pub fn letters(
        &mut self,
        act: &str,
        (from, to): (&str, &str),
        mut tell: impl FnMut(Letter),
    ) -> RedisResult<()> {
        let mut from = from.to_owned();
        loop {
            let letters: Vec<Letter> = self.ask("letters", (act, &from, to))?;
            let Some((last, ..)) = letters.last() else {
                return Ok(());
            };
            from = format!("({last}");
            letters.into_iter().for_each(&mut tell);
        }
    }
}

impl Settings {
    /// Says in one sentence what is wrong.
    pub fn explain(&self, error: &RedisError) -> String {
        let Self { url, stream, .. } = self;
        let text = error.to_string();
        // Leave out the user and the password.
        let server = url.rsplit('@').next().unwrap_or(url);
        let is = |code: &str| text.contains(code);
        let what = match error.kind() {
            ErrorKind::InvalidClientConfig if url.starts_with("rediss:") => {
                format!(
                    "no TLS for {server}: build the crate `redis` with its feature `tls-rustls`"
                )
            }
            ErrorKind::InvalidClientConfig => {
                format!("bad URL {server}: it is written redis://HOST:PORT/")
            }
            ErrorKind::Io if error.is_timeout() => format!("Redis at {server} is silent"),
            ErrorKind::Io => format!("no Redis answers at {server}"),
            _ if is("OOM") => {
                format!("Redis at {server} is full (maxmemory): it takes no new jobs")
            }
            _ if is("WRONGTYPE") => {
                format!("`{stream}`, or a key that begins so, is of the wrong type")
            }
            _ if is("NOGROUP") => format!("no group reads the stream `{stream}`"),
            ErrorKind::Server(ServerErrorKind::Moved) => format!(
                "{server} is of a cluster: give the URL of the node that has `{stream}`, and start \
                 again if it moves"
            ),
            ErrorKind::Server(ServerErrorKind::CrossSlot) => {
                format!("in a cluster write the stream in braces, {{{stream}}}")
            }
            _ => format!("Redis at {server}"),
        };
        format!("{what}: {text}")
    }
}
