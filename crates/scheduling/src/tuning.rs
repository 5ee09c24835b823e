//! What bounds the planner's work, and where it stops to look further: every such number, with what happens at the
//! bound and what set it.
//!
//! Plans depend on these numbers, so a change of one is a change of plans: `cargo xtask same-plans BEFORE AFTER` shows
//! which, `cargo xtask bench plan` what it does to the time, and `cargo xtask bench scheduling` to time and price in
//! the cases of `docs/performance.md` (P1 to P7). Where "nothing is recorded", the history has neither a measurement of
//! the number itself nor a reason for just this one; what follows says what it comes to beside other numbers, or which
//! command shows what another would do.

// Budgets of a plan.

/// Steps of the search for contended room in a plan, if nobody says otherwise: placements that are tried. At the bound
/// a pod without a place is refused as undecided. Nothing is recorded; plans without room in `cargo xtask bench plan`
/// show what it costs.
pub(crate) const SEARCH_STEPS: u64 = 200_000;

/// Steps of the device allocator in a plan, if nobody says otherwise. At the bound answers are cut short, and pods that
/// found no devices are undecided. Nothing is recorded; a hundred questions may take all of [`STEPS_PER_QUESTION`], and
/// `cargo xtask bench dra` shows what a step takes.
pub(crate) const DEVICE_STEPS: u64 = 20_000_000;

/// Steps of the search for contended room in a plan that is only made to be compared. At the bound the plan is made
/// with what has a place. Compared plans had the whole budget until a scenario with affinity kept the planner busy for
/// minutes; a hundredth of it is what is left to them.
pub(crate) const COMPARED_STEPS: u64 = 2_000;

/// Steps of that search where machines are kept out of domains. At the bound pods have no place in that plan, and the
/// one before is kept. An eighth of [`COMPARED_STEPS`]: what more has a place then seldom has to be searched for, and a
/// plan without room took twice as long.
pub(crate) const OUTSIDE_STEPS: u64 = 250;

/// Fills of one plan at most: packings of all classes in one order. At the bound the best plan so far is the answer.
/// Set far above what is measured, so that no plan that anybody waits for is cut short: at most 13 in the cases of
/// `cargo xtask bench scheduling`, 25 for the groups and gangs of this crate's tests, and 98 in random mixes of what
/// every pass is for.
pub(crate) const MAX_FILLS: u32 = 2_000;

/// Fills that are kept back for needed plans; these then do with one fill each. As often gangs may turn out to be short
/// one after the other, before all of them are taken out ([`GANG_PLANS`]).
pub(crate) const KEPT_BACK: u32 = 16;

// Which plans are made and compared.

/// A plan with a limit may cost one part in so many more than the limit before it is made by worth, which may make it
/// cheaper. Beyond that it is given up. Nothing is recorded; the prices of P3 in `cargo xtask bench scheduling` show
/// what worth saves.
pub(crate) const CLOSE: i128 = 20;

/// Above the bound by one part in so many, a plan that goes by worth is made with the relaxation's other prices too;
/// else that is not worth its time. By one set of prices the log-normal mix with 1,000 pods came out 6.8 % above the
/// bound, by the other 0.7 %, and half-full nodes the other way round.
pub(crate) const WORTH_A_SECOND: i128 = 100;

/// How much copies of much worth are preferred when a machine is filled: not at all, somewhat, as much as by worth per
/// use. The filling that is worth most is taken. Only operations that give the same on every computer. Nothing is
/// recorded; the prices of P3 in `cargo xtask bench scheduling` show what each of them is good for.
pub(crate) const PREFERENCES: [fn(f64) -> f64; 3] =
    [|worth| worth, |worth| worth * worth.sqrt(), |worth| worth * worth];

/// Machines that are asked for room in Karpenter's order, where nobody asked for that order. At the bound it is given
/// up and the plan before is kept. P1 with 5,000 pods had come to 4.5 times the CPU of before by this order and by
/// plans that were made twice.
pub(crate) const KARPENTER_STEPS: u64 = 1_000_000;

/// A plan with groups of a label held to their domains is made if it could save one part in so many of the price. Else
/// groups stay pod by pod. It takes as long as the first plan, and mostly saves a part of that: P1 with 5,000 pods had
/// come to 4.5 times the CPU of before by plans that were made twice, and by Karpenter's order.
pub(crate) const COLOCATION_WORTH_TRYING: i128 = 25;

/// Values of a label of which the relaxations are compared for groups that have to be in one domain; where there are
/// more, groups stay where the plan has them. Chosen for zones and the like: each is solved for the groups alone.
/// `cargo xtask bench scheduling --case E1-claims` has six.
pub(crate) const DOMAINS_COMPARED: usize = 16;

/// A domain is dear to a group where its pods are worth more than in its cheapest one by more than one part in so many.
/// The relaxation leaves out what a plan cannot do without, some 10 % to 25 % in `cargo xtask bench scheduling`, so
/// what is less may not be so in a plan.
pub(crate) const DEAR_DOMAIN: i128 = 4;

/// Plans to find out which preferences can be kept for all pods of a shape. At the bound no more are tried. Nothing is
/// recorded; each may cost a whole plan, which P2 in `cargo xtask bench scheduling` shows.
pub(crate) const PREFERENCE_PLANS: usize = 10;

/// Plans after these, to find out for how many pods others can be kept. At the bound no more are tried. Nothing is
/// recorded; P2 in `cargo xtask bench scheduling` shows it.
pub(crate) const PREFERENCE_PLANS_FOR_SOME: usize = 8;

/// Plans after each of which a single gang is taken out. At the bound all that are short go at once, so that gangs may
/// be refused that had room. Nothing is recorded; each is a whole plan, and `cargo test -p scheduling gangs` shows who
/// is refused.
pub(crate) const GANG_PLANS: usize = 10;

/// Values of a label that are tried for one group that has to be in one domain. At the bound the group is undecided if
/// none of them has room. Nothing is recorded; each is a whole plan, and `cargo test -p scheduling group_domains` shows
/// what is tried.
pub(crate) const GROUP_DOMAIN_VALUES: usize = 32;

/// Plans to compare values, of all groups. At the bound later groups are undecided if what was tried has no room.
/// Nothing is recorded; it is three groups with all of [`GROUP_DOMAIN_VALUES`].
pub(crate) const GROUP_DOMAIN_PLANS: usize = 96;

// The search for contended room.

/// Copies that are placed when the search is begun. Above that it is not: it could not end within any sensible budget,
/// and each copy is a level of recursion. More steps change nothing there, so nobody is told to ask for them; room is
/// looked for by chains of exchanges ([`CHAIN_LENGTH`]).
pub(crate) const MAX_SEARCHED: u64 = 400;

/// Steps of the search that a place costs for pods whose devices matter to others. Where devices are shared nothing
/// that was found out about them holds for long, and a step there costs about a hundred others.
pub(crate) const SHARED_DEVICE_STEPS: u64 = 100;

/// Steps of the exact check of several limits of a NodePool at one leaf of the search. At the bound the leaf does not
/// count as a plan. Nothing is recorded; it is a tenth of [`LAUNCH_LIMIT_STEPS`], and a search has many leaves, which
/// `cargo xtask bench scheduling` shows in P6.
pub(crate) const LEAF_LIMIT_STEPS: u64 = 2_000;

/// Steps of the exact choice under several limits when machines are launched. At the bound machines keep all their
/// types. Nothing is recorded; it is asked once for each NodePool of a plan, which `cargo xtask bench scheduling` shows
/// in P6.
pub(crate) const LAUNCH_LIMIT_STEPS: u64 = 20_000;

/// Placements that a replay of the rules may go through for a step of the search: about as much as an attempt to place
/// a copy costs. Replays were free until a scenario with affinity kept the planner busy for minutes.
pub(crate) const PLACEMENTS_PER_STEP: u64 = 8;

/// How many times a copy can displace others where room is found by exchanges. Longer chains are not looked for, so
/// that no place found proves nothing. Two give rare pods room beyond [`MAX_SEARCHED`] copies; nothing is recorded
/// about three, which would multiply the work by all that could leave: `cargo xtask bench plan` shows it.
pub(crate) const CHAIN_LENGTH: usize = 2;

/// Steps of the search that an attempt to exchange is worth: copies are moved and moved back. Nothing is recorded;
/// plans without room in `cargo xtask bench plan` show it.
pub(crate) const EXCHANGE_STEPS: u64 = 20;

/// Assignments that are looked through in a step when somebody is to leave. Nothing is recorded; plans without room in
/// `cargo xtask bench plan` show it.
pub(crate) const ASSIGNMENTS_PER_STEP: u64 = 64;

// Choosing machines.

/// Machines opened last, and machines of which there are several alike, that are considered for a larger size: so many
/// of each. Others have been passed over by enough classes; without a bound the work grew with the square of the
/// machines. Nothing more is recorded; `cargo xtask bench scheduling` shows it in P1.
pub(crate) const MAX_GROWN: usize = 64;

/// Machines opened last that are asked what it costs that they take a class whose pods share a host. Others only take
/// it if they hold more copies. Nothing is recorded about the number; that such pods get a machine for all of them gave
/// 141 of 1,200 pods a place.
pub(crate) const MAX_PRICED: usize = 16;

/// How often it is looked for one class whether copies in machines have opened nodes to more. At the bound all that are
/// left go to machines. Without a look the machine of a pod held one less (fidelity, seed 3004); nothing is recorded
/// about the number, which `cargo xtask fidelity` shows.
pub(crate) const LOOKS_AT_NODES: usize = 64;

/// Kinds of copies for which a machine's answers about larger sizes are kept: one whose zone is open has one for each
/// zone. At the bound they are forgotten and worked out again. Nothing is recorded; `cargo xtask bench plan` shows it.
pub(crate) const KEPT_SIZES: usize = 8;

/// Kinds of copies for which it is kept what they add to each machine. At the bound all are forgotten, and a class with
/// more kinds asks each machine. Nothing is recorded about the number; `cargo xtask bench plan` shows it.
pub(crate) const SIZE_ROWS: usize = 16;

/// Combinations of rules over hosts for which it is kept what each machine takes. At the bound all are forgotten. To
/// ask each machine was a quarter of a plan; the change that began to keep answers, with three others, took P1 with
/// 5,000 pods from 826 to 714 million instructions.
pub(crate) const HOST_ROOM_ROWS: usize = 64;

/// Rounds in which copies are taken out to find an order of binding. At the bound there is none, so that the plan is
/// not taken if there is another. Nothing is recorded; each round is one more time that pods wait for others, and
/// `cargo run -p checker --example cases` plays them.
pub(crate) const MAX_STAGES: usize = 8;

// Compiling the problem.

/// Combinations of node affinity terms and places of volumes of a pod. A pod with more is refused as not supported.
/// Nothing is recorded; each is an alternative in each NodePool, which `cargo xtask bench plan` shows.
pub(crate) const MAX_TERMS: usize = 64;

/// Ways that a class may have in one NodePool. More can only come of several topology constraints with many values
/// each; what is left out is not planned on, and no refusal of the class is a proof then. Nothing is recorded; each way
/// is a set of offerings and is asked by every copy, which P5 in `cargo xtask bench scheduling` shows.
pub(crate) const MAX_ALTERNATIVES: usize = 1024;

/// Values of a `minValues` that are told apart in a list on the stack. If more are wanted, all values are counted
/// instead. Nothing is recorded; P6 in `cargo xtask bench scheduling` shows it.
pub(crate) const FEW_VALUES: usize = 32;

/// Kinds of running pods below which nobody looks for those that no node has any more. Above it, the next look is at
/// twice as many as were left. Nothing is recorded; `cargo xtask bench memory` shows what a cluster has.
pub(crate) const RUNNING_KINDS: usize = 1024;

// The linear relaxation.

/// Groups of pods that exclude each other, kinds of claims, and sets of devices that the relaxation counts: so many of
/// each, those with most copies. The bound is lower without the others, and holds all the same. Nothing is recorded;
/// each is a dimension, for which all of [`BOUND_WORK`] is divided once more.
pub(crate) const BOUND_SLOTS: usize = 16;

/// Pods with equal claims that a new machine is asked to serve for the relaxation. One that serves as many is taken to
/// serve all there are: a machine mostly has fewer devices than that, or one that any number of pods share. Nothing is
/// recorded.
pub(crate) const BOUND_SERVED: u32 = 128;

/// By how much of the most per dollar sites may differ that are treated as one: one share after the other, as long as
/// there are too many sites for [`BOUND_ROUNDS`]. Each makes the bound lower by as much at most. With them the
/// relaxation came near its optimum where it did not before; nothing is recorded of the steps between.
pub(crate) const BOUND_MERGES: [f64; 4] = [0.0025, 0.005, 0.01, 0.02];

/// Machines that one merged site stands for, so that rounding up to a whole unit matters little. Where that many cost
/// more than a number can hold, sites are not merged. Nothing is recorded; the bounds of P3 in
/// `cargo xtask bench scheduling` show what more would be worth.
pub(crate) const MERGED_MACHINES: i64 = 1 << 10;

/// Relaxations of one snapshot, or of a fleet from plan to plan, whose prices are kept. At the bound the one that was
/// not used for longest is forgotten and solved again. Nothing is recorded; the plans of a snapshot that are compared
/// mostly have few different ones, and P2 in `cargo xtask bench scheduling` shows them.
pub(crate) const KEPT_RELAXATIONS: usize = 8;

/// Multiplications that the relaxation may spend: they give the number of its rounds. Nothing is recorded;
/// `cargo xtask bench scheduling` shows the time of a plan and the gap to its bound.
pub(crate) const BOUND_WORK: usize = 20_000_000;

/// Rounds of the relaxation at least and at most. At the bound the prices are taken as they are, which give a valid
/// bound whatever they are. P1 with 5,000 pods still had 4.3 % between the sides after 600 rounds before averages began
/// anew, and 0.2 % since.
pub(crate) const BOUND_ROUNDS: (usize, usize) = (30, 600);

/// After so many rounds it is looked at how far the two sides are apart. In between nothing ends. Nothing is recorded;
/// `cargo xtask bench scheduling` shows the time.
pub(crate) const ROUNDS_BETWEEN_LOOKS: usize = 40;

/// The sides are near enough at so much of what kinds pay. Then the rounds end. Nothing is recorded; it is a tenth of
/// the least by which plans are told apart ([`WORTH_A_SECOND`]), and `cargo xtask bench scheduling` shows the gap.
pub(crate) const NEAR_ENOUGH: f64 = 0.001;

/// Averages begin anew where the distance of the sides is so much of what it was when they last did. With kinds that
/// choose after the prices of the round this brought P1 with 5,000 pods from 4.3 % between the sides to 0.2 %.
pub(crate) const RESTART_AT: f64 = 0.8;

// Devices.

/// Steps of one question to the device allocator: what hostile claims can cost, once for each distinct question. At the
/// bound the answer is cut short, and the class undecided if it finds no other place. Nothing is recorded; a hundredth
/// of [`DEVICE_STEPS`], and `cargo xtask bench dra` shows what usual questions take.
pub(crate) const STEPS_PER_QUESTION: u64 = 200_000;

/// Answers about devices that are kept. At the bound all are forgotten and asked again. Nothing is recorded;
/// `cargo xtask bench dra-scale` shows the controller's use with claims.
pub(crate) const KEPT_DEVICE_ANSWERS: usize = 4096;

/// Extended resources of one pod of which each may be served by a device plugin or by DRA. More are only told apart
/// together: all by DRA, or none. Four make 16 variants, each of which is planned on; nothing is recorded, and
/// `cargo xtask bench dra` shows what a variant asks.
pub(crate) const MAX_EXTENDED: usize = 4;

/// Steps to find out whether a node answers a demand with an error. At the bound it counts as one that does not.
/// Nothing is recorded; a quarter of [`STEPS_PER_QUESTION`], since it is asked for each node before anything is
/// planned.
pub(crate) const END_STEPS: u64 = 50_000;

/// Steps to find out whether a daemon gets its devices on one kind of machine. At the bound that is not decided, and no
/// devices are held for it. Nothing is recorded; a quarter of [`STEPS_PER_QUESTION`], since it is asked for each daemon
/// and shape before anything is planned.
pub(crate) const DAEMON_STEPS: u64 = 50_000;

/// Steps to give a nominated pod its devices. At the bound none are held for it. Nothing is recorded; a quarter of
/// [`STEPS_PER_QUESTION`], since it is asked for each of these pods before anything is planned.
pub(crate) const NOMINATED_STEPS: u64 = 50_000;

/// Ways to decide open machines that are compared at a time, for pools that these bring for others. More are not looked
/// at. Nothing is recorded; each is a trial of the whole class, which `cargo test -p scheduling domains` shows.
pub(crate) const MAX_HOSTS: usize = 16;

/// Ways to decide open machines that are sorted by domain, where no machine alone is of use to a class. More are not
/// looked at. Nothing is recorded; it is eight domains with [`MAX_HOSTS`] machines each, and [`HOST_TRIALS`] bounds
/// what is tried of them.
pub(crate) const MAX_HOSTS_OF_DOMAINS: usize = 128;

/// Comparisons of these ways for one class. What is left is placed as things are. Nothing is recorded; eight rounds of
/// [`MAX_HOSTS`].
pub(crate) const HOST_TRIALS: usize = 128;

// Claims in every order.

/// Allocations that are replayed in other orders while a plan is made. At the bound an order does not hold, and the
/// answer is undecided. Nothing is recorded; `cargo xtask bench dra-scale` shows the controller's use with claims.
pub(crate) const REPLAYS: usize = 6_000;

/// How many in its searches for contended room, which ask again and again. At the bound the search ends. Nothing is
/// recorded; it is a sixth of [`REPLAYS`], and apart from them, so that a search does not take what placing needs.
pub(crate) const SEARCH_REPLAYS: usize = 1_000;

/// Steps of the allocator for all orders of one question. At the bound the rest does not hold, and the answer is
/// undecided. Nothing is recorded; half of [`STEPS_PER_QUESTION`], which is what the question itself may take.
pub(crate) const REPLAY_STEPS: u64 = 100_000;

/// Orders whose answers are kept. More are replayed each time. Without any, replays ran out and pods were refused as
/// undecided that the next plan placed; nothing is recorded about the number, which is above all of [`REPLAYS`].
pub(crate) const KNOWN_REPLAYS: usize = 10_000;

/// Placements that compete and are replayed, if some of them are at other places; also machines that bring devices for
/// others and are replayed beside them. With more, those of the place alone count. Nothing is recorded;
/// `cargo run -p checker --example cases` plays what plans miss.
pub(crate) const REPLAYED_PLACEMENTS: usize = 32;

/// Shapes that are tried by themselves where not all of a way's hold. The way has none of the others. Nothing is
/// recorded; each is a replay of all orders, and `cargo xtask bench dra-scale` shows the use.
pub(crate) const REPLAYED_SHAPES: usize = 16;

/// Domains in which machines are tried that are free to land in several. What others do is not looked at. Before these
/// and the names of pools were looked at, the checker found 13 of 300 random clusters wrong; nothing is recorded about
/// the number, and `cargo run -p checker --example cases` plays plans.
pub(crate) const MAX_LANDINGS: usize = 4;

/// Kinds of claims of which all orders are tried: 24 of four. Of more kinds, rotations there and back. Nothing is
/// recorded; of five there would be 120, a fiftieth of [`REPLAYS`] for each allocation.
pub(crate) const MAX_PERMUTED: usize = 4;

/// Places of which all orders are tried where it matters which of them comes first. Of more, there and back. Nothing is
/// recorded; it multiplies [`MAX_PERMUTED`]'s, so that it is less, and `cargo run -p checker --example cases` plays
/// them.
pub(crate) const MAX_PERMUTED_PLACES: usize = 3;

/// Copies that are also allocated in turns, one of each kind after the other. More are not. Nothing is recorded; each
/// copy is an allocation of its own then, and `cargo run -p checker --example cases` plays plans.
pub(crate) const MAX_IN_TURNS: u32 = 24;

// Patterns of pods on whole machines, for the bound of a fleet.

/// Kinds of pods up to which patterns are looked at, and offerings of which none does what another does for less. With
/// more the bound is that of divisible pods. The matrix of the linear program has as many rows as there are kinds.
pub(crate) const PATTERN_KINDS: usize = 64;
pub(crate) const PATTERN_SITES: usize = 64;

/// The number of copies of a kind is rounded up for a fleet's prices so that no more than one in so many is one too
/// many: where one pod comes or goes, what is kept of the plan before mostly holds.
pub(crate) const ABOUT_COPIES: u64 = 16;

/// Sets of kinds for which it is reckoned exactly what free rooms that take just these are worth at most; rooms that
/// take others are reckoned as if they took any kind. Where there are more, so much room is free that its worth says
/// little.
pub(crate) const ROOMS_COVERED: usize = 8;

/// Steps of all searches for the most valuable pattern of one bound, and again for those of nodes. 27 kinds on 12
/// offerings took 150,000.
pub(crate) const PATTERN_STEPS: u64 = 1_000_000;

/// Rounds in which each offering gives a pattern, and exchanges of patterns in a round. 27 kinds took 36 rounds.
pub(crate) const PATTERN_ROUNDS: usize = 100;
pub(crate) const PATTERN_PIVOTS: usize = 500;

// Disruption.

/// Simulations of one plan in which the next machine that has drifted comes in for one whose pods have no place
/// elsewhere. At the bound no more machines are tried, and the next plan goes on. Nothing is recorded; each costs a
/// plan of the pods that move, and mostly the first is the last.
pub(crate) const DRIFT_REFILLS: usize = 8;

/// Simulations of one plan for drift at most: those after [`DRIFT_REFILLS`] only leave machines out. At the bound none
/// with pods goes. Twice as many, so that what fell into place late can settle.
pub(crate) const DRIFT_SIMULATIONS: usize = 2 * DRIFT_REFILLS;

/// Simulations of one plan for machines that may go before their replacement is launched, one for each such machine.
/// Each costs a plan of the pods that move. At the bound the others stay, and the next plan goes on.
pub(crate) const TERMINATE_FIRST_SIMULATIONS: usize = 8;

/// Classes that consolidation may place while it looks for sets of machines that could go, shared out among the ways to
/// begin; each class placed in a trial is one, and where it wants devices that counts more (below). As many again to
/// say why the others stay. At the bound what was found is the answer, and machines whose turn has not come are
/// undecided. Nothing is recorded; `cargo test -p scheduling consolidation` shows what small fleets come to.
pub(crate) const CONSOLIDATION_STEPS: u64 = 400_000;

/// What a question to the engine about devices counts among [`CONSOLIDATION_STEPS`], and how many nodes are looked at
/// for one of these, so that a step takes about as long with devices as without. Nothing is recorded; D8 in
/// `cargo xtask bench consolidation` shows the time.
pub(crate) const STEPS_OF_DEVICE_QUESTION: u64 = 4;
/// See [`STEPS_OF_DEVICE_QUESTION`].
pub(crate) const NODES_OF_A_STEP: u64 = 32;

/// Machines up to which Karpenter's sets are also planned by provisioning one by one, in case the search places their
/// pods worse: twice as many plans. Two of 60 random small fleets had saved less than by Karpenter's best command.
pub(crate) const SMALL_FLEET: usize = 16;

/// Nothing is tried where all that can be gained is less than one part in so many of what the machines cost. The bound
/// is rounded down for each pod, so that it is never reached.
pub(crate) const SMALLEST_GAIN: i128 = 1_000_000;

/// Machines of a set that is tried together because they are alike. Karpenter's sets are tried besides, whatever their
/// size. Nothing is recorded about more.
pub(crate) const RELATED_MACHINES: usize = 6;

/// Machines of the largest set of Karpenter's that is tried: Karpenter's own number.
pub(crate) const LARGEST_PREFIX: usize = 100;

/// Prefixes of machines by surplus that are tried as beginnings, each half of the one before.
pub(crate) const SURPLUS_PREFIXES: usize = 3;

/// Machines below which what goes is not improved by exchanges: small sets have been tried whole, and after a change of
/// one node a plan has to be ready at once.
pub(crate) const LEAST_EXCHANGED: usize = 12;

/// Twice the exchanges that the first look of a search tries to bring more, and twice those to evict fewer; each look
/// tries half of what is left. In each the pods of all machines that go are placed. With 6,000 to bring more, and none
/// to evict fewer, C2-300 (`cargo xtask bench consolidation`) came to 204 evictions for $79.54, with 20,000 to 198 for
/// $79.54, with 60,000 to 197 for $79.54.
pub(crate) const EXCHANGE_TRIALS: usize = 20_000;

/// Exchanges in a row that bring nothing after which a look tries no more: a quarter of [`EXCHANGE_TRIALS`].
pub(crate) const EXCHANGES_IN_VAIN: usize = 5000;

/// By how much evictions count for more where fewer of them are looked for, as a fraction; and what may be given up for
/// that, one part in so many of what a plan brings. By five beginnings of the random numbers C2-300 came to 187.6
/// evictions in the mean (186 to 189) for $79.73 to $79.92 with 2.3, to 189.4 (185 to 194) with 2.5, to 190.8 with 2.7.
pub(crate) const CALM_EVICTIONS_COUNT: (i128, i128) = (7, 3);
/// See [`CALM_EVICTIONS_COUNT`].
pub(crate) const CALM_GIVES_UP: i128 = 100;

/// Classes that either kind of exchanges of one look may place, counted as [`CONSOLIDATION_STEPS`] are.
pub(crate) const STEPS_OF_EXCHANGES: u64 = 4 * CONSOLIDATION_STEPS;

/// Trials to leave machines out of a set that pays: a set of [`LARGEST_PREFIX`] is halved down to single machines.
pub(crate) const TRIMMING_TRIALS: usize = 2 * LARGEST_PREFIX;

/// Times that consolidation searches anew because provisioning did not confirm all that was found. After the last, what
/// is confirmed goes. Each costs a search and a plan of the pods that move.
pub(crate) const CONSOLIDATION_ROUNDS: usize = 6;

/// A command that launches several machines saves at least one part in so many of what goes. Where any saving paid,
/// 30 deployments of Karpenter's performance suite were shared out anew again and again, 20 to 130 pods at a time, for
/// less than what was then launched for the one pod in twenty that found no room.
pub(crate) const REGROUPING_SAVES: i128 = 20;

/// How many times what moved pods have cost of late a command saves for each that it moves: at least half of what is
/// planned to be saved is to be left.
pub(crate) const DISPLACEMENT_MARGIN: i128 = 2;

/// Plans of what was asked for before, each with less of it, until one holds or a search is made. Each costs a plan of
/// the pods that move; what does not hold is mostly left out after the first.
pub(crate) const STILL_HOLDS_TRIALS: usize = 6;

/// How many times the machines of a command that does not hold a set has to have so that the rest of it is planned
/// again without a new search.
pub(crate) const LARGE_FOR_A_COMMAND: usize = 4;

/// Times in a round that the rest of large sets is planned again. C2-1000 (`cargo xtask bench consolidation`) took
/// seven.
pub(crate) const PARTIAL_PROPOSALS: usize = 16;

/// Instance types that have to be cheaper than a spot machine that is replaced by another alone, and of which as many
/// are kept: Karpenter's number, so that the next spot machine is not replaced at once.
pub(crate) const SPOT_TO_SPOT_TYPES: usize = 15;

// What people are told.

/// Offerings that may be asked in one plan for remedies, a class and an alternative of its node affinity at a time. At
/// the bound what is refused later is told what each NodePool says and no more; what is refused first is the most
/// important. It is as many as [`SEARCH_STEPS`]; the case P9 of `cargo xtask bench scheduling` shows what it costs.
pub(crate) const REMEDY_STEPS: u64 = 200_000;

/// Changes of one remedy. One that needs more is not told: chosen as what somebody would try.
pub(crate) const MAX_NEEDS: usize = 2;

/// Remedies of one refusal, those with fewest changes first. The others are not told. Chosen to be read in an event.
pub(crate) const MAX_REMEDIES: usize = 3;

/// Contradictions that a message names, before the number of the rest. Chosen because a person mends the first ones.
pub(crate) const TOLD_CONTRADICTIONS: usize = 3;

/// Steps of the allocator that a message tells of one request, and zones that it names; the rest is a number. Chosen to
/// be read in an event.
pub(crate) const TOLD_STEPS: usize = 5;

/// Different troubles with devices that a message tells of one NodePool; the rest is left out. Chosen to be read in an
/// event.
pub(crate) const TOLD_TROUBLES: usize = 3;

/// Notes of one kind above which they are told as one. A hundred Deployments with a spread made a hundred lines.
pub(crate) const TOLD_NOTES: usize = 3;
