//! Launches: what waits for others of its kind, what is written down, what is asked of EC2, and who gets which machine.
//!
//! A launch waits a moment for others with an equal request. The batch is written into the [`Journal`], then EC2 is
//! asked, in a task of its own: whoever waits for a launch may give up without any harm, and finds it again. After a
//! crash the journal has what was under way. Whoever needs to know what became of it repeats the call, and gets the
//! answer that was given first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use model::{DurationMs, Timestamp, Uid};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::Clock;
use super::cluster::Failure;
use super::journal::{Journal, NotOpened, Open};
use super::pace::Pace;
use crate::fleet_answer::{Outcome, outcomes};
use crate::launch::batch::{Batch, Occasion, Wanted, batches};
use crate::service::ec2::FleetAnswer;
use crate::service::{Ec2, Error, Kind};

/// A launch waits for others until none has come for so long, as in `pkg/batcher` of karpenter-provider-aws 1.15,
const IDLE: Duration = Duration::from_millis(35);
/// but no longer than this.
const LONGEST: Duration = Duration::from_secs(1);
/// How often a throttled call is made, a second apart. EC2 gives two more tokens in that time. That happens where
/// others launch in the account too; of ours each waits for its token ([`Pace`]).
const TRIES: u32 = 30;
const BETWEEN_TRIES: Duration = Duration::from_secs(1);
/// How long EC2 is trusted to know a token; it promises more.
const TOKEN_LIFE: DurationMs = DurationMs::from_seconds(3600);

/// How a launch ended.
pub(super) type Ended = Result<Arc<Answered>, NotLaunched>;

/// What EC2 answered to a batch.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) batch: Arc<Batch>,
    pub(super) answer: Arc<FleetAnswer>,
    /// What became of each claim.
    pub(super) outcomes: BTreeMap<Uid, Outcome>,
}

impl Answered {
    fn new(batch: &Arc<Batch>, answer: Arc<FleetAnswer>) -> Arc<Self> {
        let outcomes = outcomes(batch, &answer).into_iter().map(|(claim, outcome)| (claim.uid, outcome)).collect();
        Arc::new(Self { batch: Arc::clone(batch), answer, outcomes })
    }

    /// The claims for which there is no machine.
    fn refused(&self) -> BTreeSet<Uid> {
        let refused = |(uid, outcome): (&Uid, &Outcome)| match outcome {
            Outcome::Launched(_) => None,
            Outcome::NoCapacity { .. } | Outcome::Failed { .. } => Some(uid.clone()),
        };
        self.outcomes.iter().filter_map(refused).collect()
    }
}

/// Why it is not known what became of a launch, or that nothing did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NotLaunched {
    /// EC2 refused the call. Nothing was launched.
    Refused(Error),
    /// It is worth trying again.
    Later(String),
    /// The answer is not to be had any more: too much time has passed since the call.
    TooLate,
}

impl From<Failure> for NotLaunched {
    fn from(failure: Failure) -> Self {
        Self::Later(failure.to_string())
    }
}

/// Told of what EC2 answers and what is asked of it.
pub(super) trait Observer: Send + Sync {
    /// A batch is about to be asked for.
    fn asked(&self, batch: &Batch);
    /// What was answered to it; none if nothing was.
    fn answered(&self, batch: &Batch, answer: Option<&FleetAnswer>);
    /// Launches have waited for others for so long, and became these batches.
    fn batched(&self, batches: &[Batch], waited: Duration);
}

/// See the [module](self). Clones are the same one.
#[derive(Clone)]
pub(super) struct Launcher {
    inner: Arc<Inner>,
}

struct Inner {
    ec2: Arc<dyn Ec2>,
    journal: Journal,
    clock: Clock,
    observer: Arc<dyn Observer>,
    /// Makes tokens differ between processes, and counts occasions.
    occasions: AtomicU64,
    waiting: Mutex<Waiting>,
    /// One at a time repeats calls.
    settling: tokio::sync::Mutex<()>,
    pace: Pace,
}

/// Launches that nobody has asked EC2 for yet, and all that are under way.
#[derive(Default)]
struct Waiting {
    wanted: Vec<Wanted>,
    /// Counts what came.
    arrivals: u64,
    has_window: bool,
    flights: BTreeMap<Uid, watch::Receiver<Option<Ended>>>,
    senders: BTreeMap<Uid, watch::Sender<Option<Ended>>>,
}

impl Launcher {
    /// `seed` is another one in every process.
    pub(super) fn new(
        ec2: Arc<dyn Ec2>,
        journal: Journal,
        clock: Clock,
        observer: Arc<dyn Observer>,
        seed: u64,
    ) -> Self {
        let inner = Inner {
            ec2,
            journal,
            clock,
            observer,
            occasions: AtomicU64::new(seed),
            waiting: Mutex::default(),
            settling: tokio::sync::Mutex::default(),
            pace: Pace::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(super) fn journal(&self) -> &Journal {
        &self.inner.journal
    }

    /// What became of a claim's launch; none if it has none.
    pub(super) async fn known(&self, uid: &Uid) -> Result<Option<Arc<Answered>>, NotLaunched> {
        let flight = self.inner.waiting.lock().flights.get(uid).cloned();
        if let Some(flight) = flight {
            return ended(flight).await.map(Some);
        }
        match self.inner.journal.of_claim(uid).await? {
            Some(open) => Ok(Some(self.settle(&open).await?)),
            None => Ok(None),
        }
    }

    /// Launches a machine for a claim, or waits for the launch that it has.
    pub(super) async fn launch(&self, wanted: Wanted) -> Ended {
        let flight = self.inner.waiting.lock().add(wanted);
        let (flight, is_first) = flight;
        if is_first {
            let launcher = self.clone();
            tokio::spawn(async move { launcher.window().await });
        }
        ended(flight).await
    }

    /// Waits until no launch comes any more, and then asks for all that have.
    async fn window(&self) {
        let mut waited = Duration::ZERO;
        let mut seen = 0;
        let wanted = loop {
            tokio::time::sleep(IDLE).await;
            waited += IDLE;
            let mut waiting = self.inner.waiting.lock();
            if waiting.arrivals == seen || waited >= LONGEST {
                break waiting.take();
            }
            seen = waiting.arrivals;
        };
        let occasion = Occasion { now: self.now(), number: self.inner.occasions.fetch_add(1, Ordering::SeqCst) };
        let batches = batches(wanted, occasion);
        self.inner.observer.batched(&batches, waited);
        join_all(batches.into_iter().map(|batch| self.run(Arc::new(batch)))).await;
    }

    /// Writes a batch down, asks for it, and tells those who wait.
    async fn run(&self, batch: Arc<Batch>) {
        match self.inner.journal.open(&batch).await {
            Ok(()) => {
                let ended = self.ask(&batch).await;
                self.tell(&batch, |_| ended.clone());
            }
            // What was there before counts. The others try again, without those.
            Err(NotOpened::Busy(busy)) => {
                let of = |uid: &Uid| {
                    let has = if busy.contains(uid) { "its launch is under way" } else { "its batch was given up" };
                    Err(NotLaunched::Later(has.to_owned()))
                };
                self.tell(&batch, of);
            }
            Err(NotOpened::Failed(message)) => self.tell(&batch, |_| Err(NotLaunched::Later(message.clone()))),
        }
    }

    fn tell(&self, batch: &Batch, ended: impl Fn(&Uid) -> Ended) {
        let mut waiting = self.inner.waiting.lock();
        for claim in &batch.claims {
            waiting.flights.remove(&claim.uid);
            if let Some(sender) = waiting.senders.remove(&claim.uid) {
                // Nobody may be waiting any more.
                let _ = sender.send(Some(ended(&claim.uid)));
            }
        }
    }

    /// Asks for an open batch that nobody has asked for yet.
    async fn ask(&self, batch: &Arc<Batch>) -> Ended {
        self.inner.observer.asked(batch);
        let ended = self.call(batch, false).await;
        let answer = ended.as_ref().ok().map(|answered| &*answered.answer);
        self.inner.observer.answered(batch, answer);
        ended
    }

    /// What became of an open batch. If the answer is not known, the call is repeated.
    pub(super) async fn settle(&self, open: &Open) -> Ended {
        if let Some(answer) = &open.answer {
            return Ok(Answered::new(&open.batch, Arc::clone(answer)));
        }
        let first = open.batch.claims.first().map(|claim| &claim.uid);
        let _settling = self.inner.settling.lock().await;
        // Somebody else may have settled it meanwhile, or is asking.
        let flight = first.and_then(|uid| self.inner.waiting.lock().flights.get(uid).cloned());
        if let Some(flight) = flight {
            return ended(flight).await;
        }
        let now_open = self.inner.journal.all().await?;
        match now_open.into_iter().find(|it| it.batch.token == open.batch.token) {
            None => Err(NotLaunched::Later("its launch was given up".to_owned())),
            Some(Open { answer: Some(answer), batch, .. }) => Ok(Answered::new(&batch, answer)),
            Some(open) if self.now().since(open.at()) > TOKEN_LIFE => Err(NotLaunched::TooLate),
            Some(open) => self.call(&open.batch, open.may_be_called).await,
        }
    }

    /// Makes the call. `may_be_called` says that it may have been made before: then only an answer, or a refusal that
    /// no earlier call could have had, ends it.
    async fn call(&self, batch: &Arc<Batch>, may_be_called: bool) -> Ended {
        self.inner.journal.called(&batch.token).await;
        let mut may_be_called = may_be_called;
        let mut tries_left = TRIES;
        let error = loop {
            self.inner.pace.turn().await;
            match self.inner.ec2.create_fleet(&batch.request, batch.claims.len(), &batch.token).await {
                Ok(answer) => return self.answered(batch, answer).await,
                Err(error) => {
                    tries_left -= 1;
                    may_be_called |= error.kind == Kind::ServerFault;
                    if error.kind == Kind::Throttled {
                        self.inner.pace.is_spent().await;
                    }
                    let is_temporary = matches!(error.kind, Kind::Throttled | Kind::ServerFault);
                    if !is_temporary || tries_left == 0 {
                        break error;
                    }
                }
            }
            tokio::time::sleep(BETWEEN_TRIES).await;
        };
        let is_undecided = match error.kind {
            Kind::ServerFault => true,
            Kind::Throttled => may_be_called,
            Kind::NotFound
            | Kind::AlreadyExists
            | Kind::WouldSucceed
            | Kind::Unauthorized
            | Kind::LaunchTemplateGone
            | Kind::UserDataTooLarge
            | Kind::NoCapacity
            | Kind::Other => false,
        };
        if is_undecided {
            return Err(NotLaunched::Later(error.to_string()));
        }
        self.inner.journal.close(&batch.claims.iter().map(|claim| claim.uid.clone()).collect()).await?;
        Err(NotLaunched::Refused(error))
    }

    async fn answered(&self, batch: &Arc<Batch>, answer: FleetAnswer) -> Ended {
        let answer = Arc::new(answer);
        self.inner.journal.answered(&batch.token, Arc::clone(&answer)).await;
        let answered = Answered::new(batch, answer);
        // Those who got none are free to try something else.
        self.inner.journal.close(&answered.refused()).await?;
        Ok(answered)
    }

    fn now(&self) -> Timestamp {
        (self.inner.clock)()
    }
}

impl Waiting {
    /// What the claim's launch will end as, and whether somebody has to open a window for it.
    fn add(&mut self, wanted: Wanted) -> (watch::Receiver<Option<Ended>>, bool) {
        let uid = wanted.claim.uid.clone();
        if let Some(flight) = self.flights.get(&uid) {
            return (flight.clone(), false);
        }
        let (sender, flight) = watch::channel(None);
        self.flights.insert(uid.clone(), flight.clone());
        self.senders.insert(uid, sender);
        self.wanted.push(wanted);
        self.arrivals += 1;
        (flight, !std::mem::replace(&mut self.has_window, true))
    }

    fn take(&mut self) -> Vec<Wanted> {
        self.has_window = false;
        std::mem::take(&mut self.wanted)
    }
}

/// Waits for a launch's end.
async fn ended(mut flight: watch::Receiver<Option<Ended>>) -> Ended {
    let ended = flight.wait_for(Option::is_some).await;
    let ended = ended.map(|ended| ended.clone());
    ended.ok().flatten().unwrap_or_else(|| Err(NotLaunched::Later("its launch was given up".to_owned())))
}
