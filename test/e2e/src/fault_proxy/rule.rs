//! What goes wrong with which requests.

use std::ops::Range;
use std::time::Duration;

use http::Method;

use seeded_random::Random;

/// What a request is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verb {
    /// Get and list.
    Read,
    /// A list that goes on.
    Watch,
    /// POST.
    Create,
    /// PATCH and PUT.
    Update,
    /// DELETE.
    Delete,
}

impl Verb {
    /// Of a request with this query.
    #[must_use]
    pub fn of(method: &Method, query: &str) -> Self {
        match *method {
            Method::POST => Self::Create,
            Method::PATCH | Method::PUT => Self::Update,
            Method::DELETE => Self::Delete,
            _ if query.split('&').any(|part| matches!(part, "watch=true" | "watch=1")) => Self::Watch,
            _ => Self::Read,
        }
    }
}

/// On which side of the API server a fault strikes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Point {
    /// The request never gets there.
    Request,
    /// It does, with all its effect, and the sender does not hear of it.
    Answer,
}

/// How a watch ends that has lost events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// Without a word. The sender goes on where it thinks it was.
    Closed,
    /// Its last event says 410 Expired. The sender lists anew.
    Expired,
}

/// What goes wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Nothing, but it takes so long first.
    Delay(Range<Duration>),
    /// There is never an answer; the connection stays open.
    Hold(Point),
    /// The connection breaks when so many bytes of the answer's body have passed.
    CutBody {
        /// After how many.
        after_bytes: Range<u64>,
    },
    /// A refusal in place of the API server's answer.
    Refuse {
        /// The code, such as 429.
        code: u16,
        /// In seconds, as the header says it.
        retry_after: Option<u32>,
        /// Whether the API server did what it was asked to.
        point: Point,
    },
    /// While the rule holds, running watches lose their events; when it is gone, those that lost any end. Never without
    /// an end, since no API server does that and no client could notice.
    LoseEvents(Ending),
}

impl Fault {
    /// In which count of strikes it is.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Delay(_) => "delayed",
            Self::Hold(Point::Request) => "held",
            Self::Hold(Point::Answer) => "held after the effect",
            Self::CutBody { .. } => "cut in the body",
            Self::Refuse { point: Point::Request, .. } => "refused",
            Self::Refuse { point: Point::Answer, .. } => "refused after the effect",
            Self::LoseEvents(_) => "lost events",
        }
    }
}

/// A fault, and whom it strikes.
#[derive(Clone, Debug)]
pub struct Rule {
    fault: Fault,
    verbs: Vec<Verb>,
    path: Option<String>,
    per_mille: u32,
    at_most: Option<u32>,
}

impl Rule {
    /// A fault of every request; what follows narrows it.
    #[must_use]
    pub const fn new(fault: Fault) -> Self {
        Self { fault, verbs: Vec::new(), path: None, per_mille: 1000, at_most: None }
    }

    /// Only these verbs.
    #[must_use]
    pub fn verbs(mut self, verbs: &[Verb]) -> Self {
        self.verbs = verbs.to_vec();
        self
    }

    /// Only paths with this in them, such as `/nodeclaims`.
    #[must_use]
    pub fn path(mut self, part: &str) -> Self {
        self.path = Some(part.to_owned());
        self
    }

    /// Only so many of a thousand.
    #[must_use]
    pub const fn per_mille(mut self, share: u32) -> Self {
        self.per_mille = share;
        self
    }

    /// Only the first so many of those that it would strike.
    #[must_use]
    pub const fn at_most(mut self, times: u32) -> Self {
        self.at_most = Some(times);
        self
    }

    fn is_about(&self, verb: Verb, path: &str) -> bool {
        (self.verbs.is_empty() || self.verbs.contains(&verb))
            && self.path.as_deref().is_none_or(|part| path.contains(part))
    }
}

/// The rules of the moment.
#[derive(Debug, Default)]
pub(super) struct Rules(Vec<Rule>);

impl Rules {
    pub(super) const fn new(rules: Vec<Rule>) -> Self {
        Self(rules)
    }

    /// What goes wrong with a request as it comes in: the first rule that strikes.
    pub(super) fn strike(&mut self, verb: Verb, path: &str, random: &mut Random) -> Option<Fault> {
        let of_requests = |rule: &&mut Rule| !matches!(rule.fault, Fault::LoseEvents(_)) && rule.is_about(verb, path);
        for rule in self.0.iter_mut().filter(|rule| of_requests(rule)) {
            if rule.at_most == Some(0) || !random.per_mille(rule.per_mille) {
                continue;
            }
            if let Some(left) = &mut rule.at_most {
                *left -= 1;
            }
            return Some(rule.fault.clone());
        }
        None
    }

    /// Whether a running watch of this path loses its events now, and how it will end. Its number decides whether it is
    /// one of the rule's share, so that it is each time it is asked.
    pub(super) fn loses_events(&self, path: &str, watch: u64) -> Option<Ending> {
        self.0.iter().find_map(|rule| match rule.fault {
            Fault::LoseEvents(ending)
                if rule.is_about(Verb::Watch, path) && Random::new(watch).per_mille(rule.per_mille) =>
            {
                Some(ending)
            }
            _ => None,
        })
    }
}
