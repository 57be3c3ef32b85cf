//! Shows the effects of a panic in a task. It ends neither its worker nor the pool. In a program
//! built with `panic = "abort"`, it ends the process before the pool can call a hook.
//!
//! ```text
//! cargo run --example panics
//! CARGO_PROFILE_DEV_PANIC=abort cargo run --example panics
//! ```
//!
//! The program starts itself as a child process, lets a task panic there, and checks how the child
//! ends.

use std::env;
use std::error::Error;
use std::process::{Command, ExitCode};
use std::time::Duration;

use lazypool::{DeadlineError, Pool, Refused, Shutdown};

const CHILD: &str = "LAZYPOOL_EXAMPLE_CHILD";

/// Runs the child. Its first part works the same way with both kinds of panic.
fn child() -> Result<(), Box<dyn Error>> {
    let pool = Pool::builder()
        .max_workers(2)
        .queue_capacity(4)
        .on_panic(|panic| println!("on_panic: {:?}", panic.message()))
        .build()?;
    let minute = Duration::from_secs(60);
    assert_eq!(pool.do_with_deadline(|| 6 * 7, minute)?, 42);
    let mut sum = 0;
    pool.scope(|scope| scope.serve(|| sum += 1).map_err(Refused::without_closure))?;
    assert_eq!(sum, 1);
    pool.serve(|| ()).map_err(Refused::without_closure)?;
    println!("tasks run");

    let outcome = pool.do_with_deadline(|| -> u32 { panic!("of a task") }, minute);
    assert!(matches!(outcome, Err(DeadlineError::Panicked(_))));
    assert_eq!(pool.do_with_deadline(|| 1, minute)?, 1);
    assert!(pool.shutdown(Shutdown::Drain, minute).is_clean());
    println!("the pool goes on");
    Ok(())
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if env::var_os(CHILD).is_some() {
        child()?;
        return Ok(ExitCode::SUCCESS);
    }
    let child = Command::new(env::current_exe()?).env(CHILD, "1").output()?;
    let said = String::from_utf8(child.stdout)?;
    let said: Vec<_> = said.lines().collect();
    let aborts = cfg!(panic = "abort");
    let expected: &[_] = if aborts {
        &["tasks run"]
    } else {
        &[
            "tasks run",
            "on_panic: Some(\"of a task\")",
            "the pool goes on",
        ]
    };
    let as_documented = said == expected && child.status.success() != aborts;
    // An abort ends the process by a signal, not by an exit status.
    #[cfg(unix)]
    let as_documented = as_documented && child.status.code().is_none() == aborts;
    println!("{}; it said {said:?}", child.status);
    Ok(if as_documented {
        println!(
            "as documented for panic = {}",
            if aborts { "abort" } else { "unwind" }
        );
        ExitCode::SUCCESS
    } else {
        println!("expected {expected:?}");
        ExitCode::FAILURE
    })
}
