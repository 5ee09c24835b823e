use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const CONFIG: Config =
    Config { concurrency: 4, backoff_min: Duration::from_millis(100), backoff_max: Duration::from_secs(1) };

fn owner(stop: &CancellationToken) -> Owner {
    Owner { name: "test", beat: Beat::unobserved(), stop: stop.clone() }
}

/// Runs a queue over a recorder of (time since start, key) until nothing happens for an hour.
async fn record(
    queue: Arc<WorkQueue<&'static str>>,
    answer: impl Fn(&'static str, usize) -> anyhow::Result<Action> + Send + Sync + 'static,
) -> Vec<(u128, &'static str)> {
    let start = Instant::now();
    let log = Arc::new(Mutex::new(Vec::new()));
    let answer = Arc::new(answer);
    let stop = CancellationToken::new();
    let reconcile = {
        let log = Arc::clone(&log);
        move |key: &'static str| {
            let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
            async move {
                let turn = {
                    let mut log = log.lock();
                    log.push((start.elapsed().as_millis(), key));
                    log.iter().filter(|(_, other)| *other == key).count()
                };
                answer(key, turn)
            }
        }
    };
    let running = tokio::spawn(run(owner(&stop), queue, CONFIG, reconcile));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    stop.cancel();
    running.await.unwrap();
    Arc::try_unwrap(log).unwrap().into_inner()
}

#[tokio::test(start_paused = true)]
async fn a_key_added_many_times_is_reconciled_once() {
    let queue = Arc::new(WorkQueue::new());
    for _ in 0..10 {
        queue.add("a");
    }
    queue.add_after("a", Duration::from_secs(5));
    let log = record(Arc::clone(&queue), |_, _| Ok(Action::Done)).await;
    assert_eq!(log, [(0, "a")]);
    assert_eq!(queue.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_earlier_of_two_delays_wins() {
    let queue = Arc::new(WorkQueue::new());
    queue.add_after("a", Duration::from_secs(9));
    queue.add_after("a", Duration::from_secs(2));
    queue.add_after("a", Duration::from_secs(7));
    assert_eq!(record(queue, |_, _| Ok(Action::Done)).await, [(2000, "a")]);
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_waits_twice_as_long_each_time_and_others_go_on() {
    let queue = Arc::new(WorkQueue::new());
    queue.add("bad");
    queue.add("good");
    let log = record(queue, |key, turn| match key {
        "bad" if turn <= 6 => Err(anyhow::anyhow!("turn {turn}")),
        _ => Ok(Action::Done),
    })
    .await;
    let bad: Vec<_> = log.iter().filter(|(_, key)| *key == "bad").map(|(at, _)| *at).collect();
    assert_eq!(bad, [0, 100, 300, 700, 1500, 2500, 3500]);
    assert!(log.contains(&(0, "good")));
}

#[tokio::test(start_paused = true)]
async fn a_panic_counts_as_a_failure() {
    let queue = Arc::new(WorkQueue::new());
    queue.add("a");
    let log = record(queue, |_, turn| {
        assert!(turn > 1, "the first turn panics");
        Ok(Action::Done)
    })
    .await;
    assert_eq!(log, [(0, "a"), (100, "a")]);
}

#[tokio::test(start_paused = true)]
async fn a_key_added_while_it_runs_runs_again_and_never_beside_itself() {
    let queue = Arc::new(WorkQueue::new());
    let (active, most, turns) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let stop = CancellationToken::new();
    let reconcile = {
        let (queue, active, most, turns) =
            (Arc::clone(&queue), Arc::clone(&active), Arc::clone(&most), Arc::clone(&turns));
        move |key: &'static str| {
            let (queue, active, most, turns) =
                (Arc::clone(&queue), Arc::clone(&active), Arc::clone(&most), Arc::clone(&turns));
            async move {
                most.fetch_max(active.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                if turns.fetch_add(1, Ordering::SeqCst) == 0 {
                    queue.add(key);
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                active.fetch_sub(1, Ordering::SeqCst);
                Ok(Action::Done)
            }
        }
    };
    queue.add("a");
    let running = tokio::spawn(run(owner(&stop), Arc::clone(&queue), CONFIG, reconcile));
    tokio::time::sleep(Duration::from_secs(60)).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(turns.load(Ordering::SeqCst), 2);
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn no_more_keys_run_at_once_than_the_limit() {
    let queue = Arc::new(WorkQueue::new());
    for key in ["a", "b", "c", "d", "e", "f", "g", "h", "i"] {
        queue.add(key);
    }
    let (active, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let stop = CancellationToken::new();
    let reconcile = {
        let (active, most) = (Arc::clone(&active), Arc::clone(&most));
        move |_| {
            let (active, most) = (Arc::clone(&active), Arc::clone(&most));
            async move {
                most.fetch_max(active.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(1)).await;
                active.fetch_sub(1, Ordering::SeqCst);
                Ok(Action::Done)
            }
        }
    };
    let running = tokio::spawn(run(owner(&stop), Arc::clone(&queue), CONFIG, reconcile));
    tokio::time::sleep(Duration::from_secs(60)).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(most.load(Ordering::SeqCst), CONFIG.concurrency);
    assert_eq!(queue.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_what_is_under_way_finish_and_starts_nothing_new() {
    let queue = Arc::new(WorkQueue::new());
    queue.add("a");
    let finished = Arc::new(AtomicUsize::new(0));
    let stop = CancellationToken::new();
    let reconcile = {
        let finished = Arc::clone(&finished);
        move |_| {
            let finished = Arc::clone(&finished);
            async move {
                tokio::time::sleep(Duration::from_secs(5)).await;
                finished.fetch_add(1, Ordering::SeqCst);
                Ok(Action::RequeueAfter(Duration::ZERO))
            }
        }
    };
    let running = tokio::spawn(run(owner(&stop), Arc::clone(&queue), CONFIG, reconcile));
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(finished.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_that_hangs_is_a_failure_and_its_place_is_free_again() {
    let (queue, stop) = (Arc::new(WorkQueue::new()), CancellationToken::new());
    queue.add("hangs");
    queue.add("waits");
    let done = Arc::new(Mutex::new(Vec::new()));
    let config = Config { concurrency: 1, ..CONFIG };
    let start = Instant::now();
    let running = tokio::spawn(run(owner(&stop), Arc::clone(&queue), config, {
        let done = Arc::clone(&done);
        move |key| {
            let is_first = start.elapsed() < RECONCILE_LIMIT;
            let done = Arc::clone(&done);
            async move {
                if key == "hangs" && is_first {
                    std::future::pending::<()>().await;
                }
                done.lock().push((start.elapsed().as_secs(), key));
                Ok(Action::Done)
            }
        }
    }));
    tokio::time::sleep(RECONCILE_LIMIT * 2).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(*done.lock(), [(300, "waits"), (300, "hangs")]);
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_idle_without_keys_and_busy_with_them() {
    let (queue, stop, beats) =
        (Arc::new(WorkQueue::new()), CancellationToken::new(), crate::runtime::beats::Beats::default());
    let owner = Owner { beat: beats.beat("test", BOUND), ..owner(&stop) };
    // Polled by hand, so it can be left alone.
    let running = run(owner, Arc::clone(&queue), CONFIG, |_: &'static str| async { Ok(Action::Done) });
    let mut running = Box::pin(running);
    assert!(futures::poll!(&mut running).is_pending());
    tokio::time::advance(BOUND * 2).await;
    assert!(beats.hanging().is_empty(), "nothing is due");
    queue.add_after("a", Duration::from_secs(60));
    assert!(futures::poll!(&mut running).is_pending());
    tokio::time::advance(Duration::from_secs(59) + BOUND).await;
    assert!(beats.hanging().is_empty());
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(beats.hanging().len(), 1, "a key is due, and the loop does not run");
}
