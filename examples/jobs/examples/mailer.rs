//! `mailer` sends mails until SIGTERM; `mailer ADDRESS TEXT` adds one. Needs Redis and `sendmail`.

use jobs::queue::{Failure, Job, Settings};
use jobs::work::work;
use std::sync::{atomic::AtomicBool, Arc};
use std::time::Duration;

fn send(job: &Job) -> Result<(), Failure> {
    let text = String::from_utf8_lossy(&job.payload);
    // A mail that is sent twice has the same id.
    let script = "printf 'Message-ID: <%s@jobs>\\n%s\\n' \"$0\" \"$1\" | sendmail -t";
    let mut command = std::process::Command::new("sh");
    let sent = command.args(["-c", script, &job.key, &text]).status();
    let sent = sent.map_err(|e| Failure::Passing(e.to_string()))?;
    sent.success().then_some(()).ok_or_else(|| Failure::Passing(sent.to_string()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = Duration::from_secs;
    let id = std::time::UNIX_EPOCH.elapsed()?.as_nanos();
    let s = Settings {
        consumer: format!("mailer-{}", std::process::id()),
        stream: "mails".to_owned(),
        deadline: seconds(20),
        visibility: seconds(30),
        backoff: seconds(10),
        ..Settings::default()
    };
    let words = Vec::from_iter(std::env::args().skip(1));
    if let [address, text] = &words[..] {
        let mail = format!("To: {address}\n\n{text}");
        return Ok(s.connect()?.produce(&[Job::new(id.to_string(), "mail", &mail)])?);
    }
    let pool = Arc::new(lazypool::Pool::builder().max_workers(8).queue_capacity(8).build()?);
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&stop))?;
    let hung = work(&s, &pool, Arc::new(send), &stop)?;
    std::process::exit(if hung { 3 } else { 0 }) // a service manager starts it again
}
