//! What `/metrics` shows of commands, by Karpenter's names.
//!
//! Differs: `disruption-metrics`. One plan is made for all reasons, so the duration of evaluating decisions has the
//! reason `all`; the gauges count what the last plan has seen; a move is counted as approved when its command begins,
//! and as rejected by each plan that rejects it.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::device_prices::Stranded;
use model::{NodePoolName, PriceNanoUsdPerHour};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use scheduling::disruption::plan::{CommandScore, DisruptionPlan, TerminateFirst};
use scheduling::disruption::reason::{NodeReason, Unconsolidatable};
use scheduling::snapshot::Snapshot;
use scheduling::snapshot::fleet::{ConsolidationPolicy, Reason};

use crate::runtime::metrics::{DURATION_BUCKETS, FloatGauge, Histograms, Metrics, seconds};

/// What Karpenter shows where nothing limits a NodePool.
const UNLIMITED: i64 = i32::MAX as i64;
/// All reasons that something is planned for.
const REASONS: [Reason; 5] = Reason::ALL;

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct DecisionLabels {
    pub decision: String,
    pub reason: String,
    pub consolidation_type: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodePoolDecisionLabels {
    nodepool: String,
    decision: String,
    reason: String,
    consolidation_type: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EvaluationLabels {
    reason: String,
    consolidation_type: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConsolidationLabels {
    consolidation_type: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MoveLabels {
    decision: String,
    nodepool: String,
    policy: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolReasonLabels {
    nodepool: String,
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct DriverLabels {
    nodepool: String,
    driver: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TerminateFirstLabels {
    nodepool: String,
    reason: String,
    terminate_first_reason: String,
}

/// What is shown.
#[derive(Debug, Clone)]
pub(crate) struct DisruptionMetrics {
    evaluation_duration_seconds: Histograms<EvaluationLabels>,
    decisions: Family<DecisionLabels, Counter>,
    decisions_by_nodepool: Family<NodePoolDecisionLabels, Counter>,
    eligible_nodes: Family<ReasonLabels, Gauge>,
    failed_validations: Family<ConsolidationLabels, Counter>,
    consolidation_timeouts: Family<ConsolidationLabels, Counter>,
    consolidation_score: Histograms<MoveLabels>,
    consolidation_moves: Family<MoveLabels, Counter>,
    queue_failures: Family<DecisionLabels, Counter>,
    terminate_first_decisions: Family<TerminateFirstLabels, Counter>,
    allowed_disruptions: Family<PoolReasonLabels, Gauge>,
    nodes_consuming_budgets: Family<PoolReasonLabels, Gauge>,
    fleet_price: FloatGauge,
    fleet_price_bound: FloatGauge,
    displacement_price: FloatGauge,
    stranded_devices_price: Family<DriverLabels, FloatGauge>,
}

/// Karpenter's buckets of scores.
const SCORE_BUCKETS: [f64; 8] = [0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0];
/// What Karpenter calls the search for several nodes that go together. There is one search here, of any number.
const SEARCH: &str = "multi";

/// A command that begins to consolidate, as it is counted.
#[derive(Debug)]
pub(crate) struct Approved<'p> {
    /// The plan that it is of.
    pub plan: &'p DisruptionPlan,
    /// The command, by its position in the plan.
    pub command: usize,
    /// The NodePools whose nodes go, with their policies.
    pub pools: Vec<(NodePoolName, ConsolidationPolicy)>,
}

/// As labels of metrics have it.
pub(crate) fn label(reason: Reason) -> String {
    reason.as_str().to_lowercase()
}

/// Karpenter's word for what of consolidation a command is.
pub(crate) fn consolidation_type(reason: Reason, nodes: usize) -> &'static str {
    match (reason, nodes) {
        (Reason::Empty, _) => "empty",
        (Reason::Underutilized, 1) => "single",
        (Reason::Underutilized, _) => "multi",
        (Reason::Drifted | Reason::Expired | Reason::Unhealthy, _) => "",
    }
}

impl DecisionLabels {
    /// Of a command.
    pub(crate) fn new(reason: Reason, nodes: usize, replacements: usize) -> Self {
        Self {
            decision: if replacements == 0 { "delete" } else { "replace" }.to_owned(),
            reason: label(reason),
            consolidation_type: consolidation_type(reason, nodes).to_owned(),
        }
    }

    /// Of a command whose replacements are launched afterwards.
    pub(crate) fn terminating_first(self) -> Self {
        Self { decision: "terminate-first".to_owned(), ..self }
    }
}

impl DisruptionMetrics {
    /// Makes `/metrics` show them.
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let durations: fn() -> Histogram = || Histogram::new(DURATION_BUCKETS);
        let scores: fn() -> Histogram = || Histogram::new(SCORE_BUCKETS);
        let this = Self {
            evaluation_duration_seconds: Family::new_with_constructor(durations),
            decisions: Family::default(),
            decisions_by_nodepool: Family::default(),
            eligible_nodes: Family::default(),
            failed_validations: Family::default(),
            consolidation_timeouts: Family::default(),
            consolidation_score: Family::new_with_constructor(scores),
            consolidation_moves: Family::default(),
            queue_failures: Family::default(),
            terminate_first_decisions: Family::default(),
            allowed_disruptions: Family::default(),
            nodes_consuming_budgets: Family::default(),
            fleet_price: FloatGauge::default(),
            fleet_price_bound: FloatGauge::default(),
            displacement_price: FloatGauge::default(),
            stranded_devices_price: Family::default(),
        };
        let karpenter = metrics.registry_mut().sub_registry_with_prefix("karpenter");
        let voluntary = karpenter.sub_registry_with_prefix("voluntary_disruption");
        voluntary.register(
            "decision_evaluation_duration_seconds",
            "Duration of one plan of disruption",
            this.evaluation_duration_seconds.clone(),
        );
        voluntary.register("decisions", "Commands that began", this.decisions.clone());
        voluntary.register(
            "decisions_by_nodepool",
            "Commands that began, once for each NodePool whose nodes go",
            this.decisions_by_nodepool.clone(),
        );
        voluntary.register("eligible_nodes", "Nodes that would go", this.eligible_nodes.clone());
        voluntary.register(
            "failed_validations",
            "Proposed commands that a later plan did not ask for",
            this.failed_validations.clone(),
        );
        voluntary.register(
            "consolidation_timeouts",
            "Plans in which the search for nodes to consolidate reached its bound",
            this.consolidation_timeouts.clone(),
        );
        drop(this.consolidation_timeouts.get_or_create(&ConsolidationLabels { consolidation_type: SEARCH.to_owned() }));
        voluntary.register("queue_failures", "Commands that were rolled back", this.queue_failures.clone());
        voluntary.register(
            "terminate_first_decisions",
            "Commands that began to remove nodes before anything was launched in their place, by NodePool",
            this.terminate_first_decisions.clone(),
        );
        let consolidation = karpenter.sub_registry_with_prefix("consolidation");
        consolidation.register(
            "score",
            "Scores of consolidation commands by NodePools with the policy Balanced",
            this.consolidation_score.clone(),
        );
        consolidation.register(
            "moves",
            "Consolidation commands that began, and those that the policy Balanced rejected, by NodePool",
            this.consolidation_moves.clone(),
        );
        let pools = karpenter.sub_registry_with_prefix("nodepools");
        pools.register(
            "allowed_disruptions",
            "How many more nodes of a NodePool may be disrupted",
            this.allowed_disruptions.clone(),
        );
        pools.register(
            "nodes_consuming_budgets",
            "Nodes of a NodePool that count against its budgets",
            this.nodes_consuming_budgets.clone(),
        );
        let own = metrics.registry_mut().sub_registry_with_prefix("dovetail");
        own.register(
            "fleet_price",
            "What the machines of the last plan of disruption cost, in dollars per hour; 0 while none is made",
            this.fleet_price.clone(),
        );
        own.register(
            "fleet_price_bound",
            "No fleet costs less in which all pods have a place, in dollars per hour; 0 where no bound is known",
            this.fleet_price_bound.clone(),
        );
        own.register(
            "displacement_price",
            "Price of machines launched lately for moved pods that did not come to their places, in dollars per hour and moved pod",
            this.displacement_price.clone(),
        );
        own.register(
            "stranded_devices_price",
            "Part of the price of machines for partitions of devices that fit beside no other, in dollars per hour",
            this.stranded_devices_price.clone(),
        );
        this
    }

    /// A command began.
    pub(crate) fn began(&self, labels: &DecisionLabels, node_pools: impl Iterator<Item = String>) {
        self.decisions.get_or_create(labels).inc();
        for nodepool in node_pools {
            let DecisionLabels { decision, reason, consolidation_type } = labels.clone();
            let labels = NodePoolDecisionLabels { nodepool, decision, reason, consolidation_type };
            self.decisions_by_nodepool.get_or_create(&labels).inc();
        }
    }

    /// A command began that launches nothing beforehand.
    pub(crate) fn terminated_first(
        &self,
        reason: Reason,
        node_pools: impl Iterator<Item = String>,
        why: TerminateFirst,
    ) {
        for nodepool in node_pools {
            let terminate_first_reason = why.as_str().to_owned();
            let labels = TerminateFirstLabels { nodepool, reason: label(reason), terminate_first_reason };
            self.terminate_first_decisions.get_or_create(&labels).inc();
        }
    }

    /// A command began that consolidates.
    pub(crate) fn approved(&self, approved: &Approved<'_>) {
        let Approved { plan, command, pools } = approved;
        for (pool, policy) in pools {
            let labels = move_labels("approved", pool, *policy);
            self.consolidation_moves.get_or_create(&labels).inc();
            let is_it = |score: &&CommandScore| score.node_pool == *pool && score.command == *command;
            if let Some(score) = plan.scores.iter().find(is_it) {
                self.consolidation_score.get_or_create(&labels).observe(as_fraction(score.score_permille));
            }
        }
    }

    /// What a plan did not do because of the policy `Balanced` or because its search ended early.
    fn rejected(&self, plan: &DisruptionPlan) {
        for (_, reason) in &plan.node_reasons {
            if let NodeReason::Unconsolidatable(Unconsolidatable::Balanced { node_pool, score_permille }) = reason {
                let labels = move_labels("rejected", node_pool, ConsolidationPolicy::Balanced);
                self.consolidation_moves.get_or_create(&labels).inc();
                self.consolidation_score.get_or_create(&labels).observe(as_fraction(*score_permille));
            }
        }
        let undecided = NodeReason::Undecided { reason: Reason::Underutilized };
        if plan.node_reasons.iter().any(|(_, reason)| *reason == undecided) {
            let labels = ConsolidationLabels { consolidation_type: SEARCH.to_owned() };
            self.consolidation_timeouts.get_or_create(&labels).inc();
        }
    }

    /// A command was rolled back.
    pub(crate) fn failed(&self, labels: &DecisionLabels) {
        self.queue_failures.get_or_create(labels).inc();
    }

    /// Shows something of each metric.
    #[cfg(test)]
    pub(crate) fn touch(&self) {
        let labels = DecisionLabels::new(Reason::Underutilized, 1, 0);
        self.began(&labels, ["p".to_owned()].into_iter());
        self.failed(&labels);
        self.terminated_first(Reason::Drifted, ["p".to_owned()].into_iter(), TerminateFirst::StaticAtLimit);
        self.not_confirmed(Reason::Underutilized, 1);
        let labels = move_labels("approved", &"p".into(), ConsolidationPolicy::Balanced);
        self.consolidation_moves.get_or_create(&labels).inc();
        self.consolidation_score.get_or_create(&labels).observe(1.0);
        let of_pool = PoolReasonLabels { nodepool: "p".to_owned(), reason: label(Reason::Empty) };
        self.planned(&DisruptionPlan::default(), Duration::ZERO);
        let of_driver = DriverLabels { nodepool: "p".to_owned(), driver: "d".to_owned() };
        self.stranded_devices_price.get_or_create(&of_driver).set(1.0);
        self.allowed_disruptions.get_or_create(&of_pool).set(1);
        self.nodes_consuming_budgets.get_or_create(&of_pool).set(1);
    }

    /// A proposal was dropped.
    pub(crate) fn not_confirmed(&self, reason: Reason, nodes: usize) {
        let consolidation_type = consolidation_type(reason, nodes).to_owned();
        self.failed_validations.get_or_create(&ConsolidationLabels { consolidation_type }).inc();
    }

    /// No plan is made, since no machine could go.
    pub(crate) fn at_rest(&self) {
        self.fleet_price.set(0.0);
        self.fleet_price_bound.set(0.0);
        self.stranded_devices_price.clear();
    }

    /// What is stranded of the devices of a snapshot.
    pub(crate) fn stranded(&self, all: &[Stranded], snapshot: &Snapshot) {
        let mut sums: BTreeMap<DriverLabels, PriceNanoUsdPerHour> = BTreeMap::new();
        for Stranded { node, driver, price } in all {
            let node_pool = snapshot.nodes.try_get(*node).and_then(|node| node.node_pool.as_ref());
            let nodepool = node_pool.map(ToString::to_string).unwrap_or_default();
            let sum = sums.entry(DriverLabels { nodepool, driver: driver.to_string() }).or_default();
            *sum = sum.saturating_add(*price);
        }
        // Who has nothing stranded any more is shown no more.
        self.stranded_devices_price.clear();
        for (labels, price) in sums {
            self.stranded_devices_price.get_or_create(&labels).set(price.dollars());
        }
    }

    /// What each pod that moves has to save besides, since others did not come to their places.
    pub(crate) fn displaced(&self, price: PriceNanoUsdPerHour) {
        self.displacement_price.set(price.dollars());
    }

    /// A plan was made.
    pub(crate) fn planned(&self, plan: &DisruptionPlan, took: Duration) {
        self.fleet_price.set(plan.fleet_price.before.dollars());
        let labels = EvaluationLabels { reason: "all".to_owned(), consolidation_type: String::new() };
        self.evaluation_duration_seconds.get_or_create(&labels).observe(seconds(took));
        if !plan.is_asked_for {
            self.searched(plan);
        }
        // A NodePool that is gone is shown no more.
        self.allowed_disruptions.clear();
        self.nodes_consuming_budgets.clear();
        for pool in &plan.pools {
            for (reason, allowed) in &pool.allowed {
                // Those that are not ready do not keep others from being repaired.
                let unready = if *reason == Reason::Unhealthy { pool.unready } else { 0 };
                let consumed = i64::from(pool.disrupted) + i64::from(pool.taken) - i64::from(unready);
                let labels = PoolReasonLabels { nodepool: pool.name.to_string(), reason: label(*reason) };
                let allowed = allowed.map_or(UNLIMITED, |allowed| (i64::from(allowed) - consumed).max(0));
                self.allowed_disruptions.get_or_create(&labels).set(allowed);
                self.nodes_consuming_budgets.get_or_create(&labels).set(consumed);
            }
        }
    }

    /// What a plan has found out about all machines.
    fn searched(&self, plan: &DisruptionPlan) {
        self.fleet_price_bound.set(plan.fleet_bound.unwrap_or_default().dollars());
        self.rejected(plan);
        let mut eligible: BTreeMap<Reason, i64> = REASONS.into_iter().map(|reason| (reason, 0)).collect();
        for reason in plan.node_reasons.iter().filter_map(|(_, reason)| would_go(plan, reason)) {
            *eligible.entry(reason).or_default() += 1;
        }
        for (reason, count) in eligible {
            self.eligible_nodes.get_or_create(&ReasonLabels { reason: label(reason) }).set(count);
        }
    }
}

fn move_labels(decision: &str, node_pool: &NodePoolName, policy: ConsolidationPolicy) -> MoveLabels {
    let policy = match policy {
        ConsolidationPolicy::WhenEmpty => "WhenEmpty",
        ConsolidationPolicy::WhenEmptyOrUnderutilized => "WhenEmptyOrUnderutilized",
        ConsolidationPolicy::Balanced => "Balanced",
    };
    MoveLabels { decision: decision.to_owned(), nodepool: node_pool.to_string(), policy: policy.to_owned() }
}

#[expect(clippy::cast_precision_loss, reason = "for display")]
fn as_fraction(permille: i64) -> f64 {
    permille as f64 / 1000.0
}

/// What a node would go for, whether it does or not.
fn would_go(plan: &DisruptionPlan, reason: &NodeReason) -> Option<Reason> {
    match reason {
        NodeReason::Goes { command } => plan.commands.get(*command).map(|command| command.reason),
        NodeReason::Budget { reason, .. }
        | NodeReason::Replicas { reason, .. }
        | NodeReason::NoPlace { reason, .. }
        | NodeReason::PlaceNotReady { reason, .. }
        | NodeReason::Undecided { reason } => Some(*reason),
        NodeReason::Unconsolidatable(Unconsolidatable::PolicyWhenEmpty(_) | Unconsolidatable::PriceUnknown) => None,
        NodeReason::Unconsolidatable(_) | NodeReason::TakesPods => Some(Reason::Underutilized),
        NodeReason::Blocked(_)
        | NodeReason::ConsolidationOff { .. }
        | NodeReason::NotQuiet { .. }
        | NodeReason::HoldsBuffer { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use model::PriceNanoUsdPerHour;
    use scheduling::disruption::plan::{FleetPrice, PoolAllowance};
    use scheduling::snapshot::NodeId;

    use super::*;

    #[test]
    fn names_and_labels_are_karpenters() {
        let mut metrics = Metrics::new();
        let of_disruption = DisruptionMetrics::register(&mut metrics);
        let pool = |name: &str, allowed| PoolAllowance {
            name: name.into(),
            nodes: 10,
            disrupted: 2,
            unready: 1,
            taken: 1,
            allowed: vec![(Reason::Drifted, allowed), (Reason::Unhealthy, allowed)],
            faults: Vec::new(),
        };
        let node = <NodeId as model::Id>::from_index(0);
        let balanced = Unconsolidatable::Balanced { node_pool: "b".into(), score_permille: 300 };
        let plan = DisruptionPlan {
            scores: [(1, 700), (0, 1500)]
                .map(|(command, score_permille)| CommandScore { command, node_pool: "a".into(), score_permille })
                .into(),
            pools: vec![pool("a", Some(5)), pool("b", None)],
            node_reasons: vec![
                (node, NodeReason::Unconsolidatable(balanced)),
                (node, NodeReason::Undecided { reason: Reason::Underutilized }),
            ],
            fleet_price: FleetPrice { before: PriceNanoUsdPerHour(12_500_000_000), ..FleetPrice::default() },
            fleet_bound: Some(PriceNanoUsdPerHour(11_250_000_000)),
            ..DisruptionPlan::default()
        };
        of_disruption.planned(&plan, Duration::from_millis(300));
        of_disruption.displaced(PriceNanoUsdPerHour(20_000_000));
        let labels = DecisionLabels::new(Reason::Underutilized, 2, 1);
        of_disruption.began(&labels, ["a".to_owned()].into_iter());
        let pools = vec![
            ("a".into(), ConsolidationPolicy::Balanced),
            ("c".into(), ConsolidationPolicy::WhenEmptyOrUnderutilized),
        ];
        of_disruption.approved(&Approved { plan: &plan, command: 0, pools });
        of_disruption.began(&DecisionLabels::new(Reason::Drifted, 1, 0).terminating_first(), std::iter::empty());
        of_disruption.terminated_first(
            Reason::Unhealthy,
            ["a".to_owned()].into_iter(),
            TerminateFirst::NoReservedCapacity,
        );
        of_disruption.failed(&DecisionLabels::new(Reason::Drifted, 1, 0));
        of_disruption.not_confirmed(Reason::Empty, 1);
        let text = metrics.render().unwrap();
        for line in [
            r#"karpenter_voluntary_disruption_decisions_total{decision="replace",reason="underutilized",consolidation_type="multi"} 1"#,
            r#"karpenter_voluntary_disruption_decisions_by_nodepool_total{nodepool="a",decision="replace",reason="underutilized",consolidation_type="multi"} 1"#,
            r#"karpenter_voluntary_disruption_queue_failures_total{decision="delete",reason="drifted",consolidation_type=""} 1"#,
            r#"karpenter_voluntary_disruption_failed_validations_total{consolidation_type="empty"} 1"#,
            r#"karpenter_voluntary_disruption_eligible_nodes{reason="drifted"} 0"#,
            r#"karpenter_voluntary_disruption_decision_evaluation_duration_seconds_count{reason="all",consolidation_type=""} 1"#,
            r#"karpenter_consolidation_moves_total{decision="approved",nodepool="a",policy="Balanced"} 1"#,
            r#"karpenter_consolidation_moves_total{decision="approved",nodepool="c",policy="WhenEmptyOrUnderutilized"} 1"#,
            r#"karpenter_consolidation_moves_total{decision="rejected",nodepool="b",policy="Balanced"} 1"#,
            r#"karpenter_consolidation_score_sum{decision="approved",nodepool="a",policy="Balanced"} 1.5"#,
            r#"karpenter_consolidation_score_bucket{le="0.33",decision="rejected",nodepool="b",policy="Balanced"} 1"#,
            r#"karpenter_voluntary_disruption_consolidation_timeouts_total{consolidation_type="multi"} 1"#,
            r#"karpenter_voluntary_disruption_decisions_total{decision="terminate-first",reason="drifted",consolidation_type=""} 1"#,
            r#"karpenter_voluntary_disruption_terminate_first_decisions_total{nodepool="a",reason="unhealthy",terminate_first_reason="no-reserved-capacity"} 1"#,
            r#"karpenter_nodepools_allowed_disruptions{nodepool="a",reason="drifted"} 2"#,
            r#"karpenter_nodepools_allowed_disruptions{nodepool="a",reason="unhealthy"} 3"#,
            r#"karpenter_nodepools_allowed_disruptions{nodepool="b",reason="drifted"} 2147483647"#,
            r#"karpenter_nodepools_nodes_consuming_budgets{nodepool="a",reason="drifted"} 3"#,
            r#"karpenter_nodepools_nodes_consuming_budgets{nodepool="a",reason="unhealthy"} 2"#,
            "dovetail_fleet_price 12.5",
            "dovetail_fleet_price_bound 11.25",
            "dovetail_displacement_price 0.02",
        ] {
            assert!(text.lines().any(|other| other == line), "no line {line} in\n{text}");
        }
    }

    #[test]
    fn the_bound_of_a_fleet_is_gone_once_none_is_known() {
        let mut metrics = Metrics::new();
        let of_disruption = DisruptionMetrics::register(&mut metrics);
        let price = |dollars: i64| PriceNanoUsdPerHour(dollars * 1_000_000_000);
        let fleet_price = FleetPrice { before: price(3), ..FleetPrice::default() };
        let known = DisruptionPlan { fleet_price, fleet_bound: Some(price(2)), ..DisruptionPlan::default() };
        let unknown = DisruptionPlan { fleet_price, ..DisruptionPlan::default() };
        let shows = |fleet: &str, bound: &str| {
            let text = metrics.render().unwrap();
            let has = |name: &str, value: &str| text.lines().any(|line| line == format!("{name} {value}"));
            assert!(has("dovetail_fleet_price", fleet) && has("dovetail_fleet_price_bound", bound), "{text}");
        };
        of_disruption.planned(&known, Duration::ZERO);
        shows("3.0", "2.0");
        of_disruption.planned(&unknown, Duration::ZERO);
        shows("3.0", "0.0");
        of_disruption.planned(&known, Duration::ZERO);
        of_disruption.at_rest();
        shows("0.0", "0.0");
    }

    #[test]
    fn stranded_devices_are_summed_by_nodepool_and_driver_and_gone_once_nothing_is_stranded() {
        let mut metrics = Metrics::new();
        let of_disruption = DisruptionMetrics::register(&mut metrics);
        let (snapshot, _) = cluster::snapshot(Default::default(), Default::default(), &Default::default());
        let node = <NodeId as model::Id>::from_index(0);
        let stranded = |dollars: i64| Stranded {
            node,
            driver: "gpu.example.com".into(),
            price: PriceNanoUsdPerHour(dollars * 1_000_000_000),
        };
        let shown = || {
            let text = metrics.render().unwrap();
            let lines = text.lines().filter(|line| line.starts_with("dovetail_stranded_devices_price{"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        of_disruption.stranded(&[stranded(1), stranded(2)], &snapshot);
        assert_eq!(shown(), [r#"dovetail_stranded_devices_price{nodepool="",driver="gpu.example.com"} 3.0"#]);
        of_disruption.stranded(&[], &snapshot);
        assert_eq!(shown(), Vec::<String>::new());
        of_disruption.stranded(&[stranded(1)], &snapshot);
        of_disruption.at_rest();
        assert_eq!(shown(), Vec::<String>::new());
    }
}
