//! Places where tests make the process die, as a crash would.
//!
//! With the feature `failpoints`, `DOVETAIL_FAILPOINTS="launch.after-create=abort;terminate.before-delete=abort@3"`
//! ends the process at once (no destructors, no clean-up) when the named place is reached, with `@n` at the n-th time.
//! Without the feature nothing is compiled in, and the feature cannot be compiled into a release build.

#[cfg(all(feature = "failpoints", not(debug_assertions)))]
compile_error!("the feature `failpoints` is for tests and must not be in a release build");

/// Marks a place. The name says the step and the moment: `launch.after-create`.
#[inline]
pub(crate) fn hit(name: &str) {
    #[cfg(feature = "failpoints")]
    active::hit(name);
    #[cfg(not(feature = "failpoints"))]
    let _ = name;
}

/// Panics if a pod of the snapshot has the label `dovetail.sh/test-panic`, as a defect of the planner would.
#[inline]
#[allow(clippy::panic, reason = "that is what tests ask for; without the feature there is none")]
pub(crate) fn panic_for(snapshot: &scheduling::Snapshot) {
    #[cfg(any(test, feature = "failpoints"))]
    if let Some(key) = snapshot.interner.find_key("dovetail.sh/test-panic")
        && let Some(marked) = snapshot.pods.iter().find(|pending| pending.pod.labels.get(key).is_some())
    {
        panic!("failpoint: pod {} is marked", marked.pod.name);
    }
    #[cfg(not(any(test, feature = "failpoints")))]
    let _ = snapshot;
}

#[cfg(feature = "failpoints")]
mod active {
    use std::collections::BTreeMap;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    const VARIABLE: &str = "DOVETAIL_FAILPOINTS";

    struct Point {
        abort_at: u64,
        hits: AtomicU64,
    }

    static POINTS: OnceLock<BTreeMap<String, Point>> = OnceLock::new();

    pub(crate) fn hit(name: &str) {
        let points = POINTS.get_or_init(|| parse(&std::env::var(VARIABLE).unwrap_or_default()));
        let Some(point) = points.get(name) else { return };
        if point.hits.fetch_add(1, Ordering::SeqCst) + 1 == point.abort_at {
            eprintln!("failpoint {name}: abort");
            std::process::abort();
        }
    }

    /// A setting that cannot be read would make a test pass for nothing, so it ends the process.
    fn parse(text: &str) -> BTreeMap<String, Point> {
        let entries = text.split(';').map(str::trim).filter(|entry| !entry.is_empty());
        entries
            .map(|entry| {
                let (name, action) = entry.split_once('=').unwrap_or((entry, ""));
                let abort_at = match action.split_once('@') {
                    None if action == "abort" => Some(1),
                    Some(("abort", count)) => count.parse().ok(),
                    None | Some(_) => None,
                };
                let Some(abort_at) = abort_at else {
                    eprintln!("{VARIABLE}: {entry:?} is not of the form name=abort or name=abort@3");
                    std::process::exit(2);
                };
                (name.to_owned(), Point { abort_at, hits: AtomicU64::new(0) })
            })
            .collect()
    }
}
