//! A task's value awaited in async code: by one client, and by 64 at once, on both kinds of tokio's
//! runtime.

use super::{Add, QUEUE, WORKERS};
use crate::contenders::{Contender, Shape};
use crate::harness::{entrants, race, Entrant, Options, Pace, Trial};
use crate::limits::parked_round_trips;
use crate::tally::{tick, Tally};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

#[derive(Clone, Copy, Debug)]
struct Awaited {
    clients: u64,
    /// Whether the clients are polled by several threads.
    multi: bool,
    budget: Duration,
}

/// One task after the other.
async fn client<C: Contender>(pool: Arc<C>, n: u64) {
    for i in 0..n {
        let i = black_box(i);
        let task = move || {
            tick();
            i + 1
        };
        let value = pool.value(task).await;
        assert_eq!(value, i + 1, "the value of its own task");
    }
}

impl Awaited {
    fn runtime(self) -> Runtime {
        let mut builder = if self.multi {
            Builder::new_multi_thread()
        } else {
            Builder::new_current_thread()
        };
        let builder = builder.worker_threads(2).max_blocking_threads(WORKERS);
        builder.build().expect("the system gives threads")
    }

    fn values<C: Contender>(self, runtime: &Runtime, pool: &Arc<C>, n: u64) -> Duration {
        let share = n.div_ceil(self.clients);
        let tally = Tally::start();
        let took = runtime.block_on(async {
            let start = Instant::now();
            let client = |_| tokio::spawn(client(Arc::clone(pool), share));
            let clients: Vec<_> = (0..self.clients).map(client).collect();
            for client in clients {
                client.await.expect("no panic");
            }
            start.elapsed()
        });
        tally.check(share * self.clients);
        took
    }
}

impl Trial for Awaited {
    type Sample = f64;

    fn admits<C: Contender>(&self) -> bool {
        C::AWAITABLE && C::VARIANT.is_none()
    }

    fn sample<C: Contender>(&self, pace: &mut Pace) -> f64 {
        let pool = Arc::new(C::build(Shape::new(WORKERS, QUEUE).refusing()));
        let runtime = self.runtime();
        pace.run(self.budget, |n| self.values(&runtime, &pool, n))
    }
}

pub(crate) fn list(options: &Options, add: Add<'_>) {
    let budget = options.budget;
    for (clients, multi, name) in [
        (1, false, "await/1"),
        (64, false, "await/64"),
        (1, true, "await/multi/1"),
        (64, true, "await/multi/64"),
    ] {
        if !options.wants(name) {
            continue;
        }
        let mut all = entrants(&Awaited {
            clients,
            multi,
            budget,
        });
        all.push(Entrant::limit("parked round trip", move |pace| {
            pace.run(budget, parked_round_trips)
        }));
        let threads = if multi { "two threads" } else { "one thread" };
        let title = format!(
            "a task's value, awaited by {clients} client(s) at once on tokio's runtime of {threads}, \
             {WORKERS} workers; all clients together, per task"
        );
        add(race(options.rounds, all, name, &title, "ns/task"));
    }
}
