use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    options: RawOptions,
}

pub(super) fn options(args: &[&str]) -> Result<Options, Error> {
    let args = std::iter::once("dovetail").chain(args.iter().copied());
    Cli::try_parse_from(args).unwrap().options.check()
}

#[test]
fn defaults_are_karpenters_but_for_overlays_and_devices() {
    let options = options(&[]).unwrap();
    assert_eq!((options.metrics_port, options.health_probe_port), (8080, 8081));
    assert_eq!((options.kube_client_qps, options.kube_client_burst), (200, 300));
    assert_eq!(options.batch_idle_duration, Duration::from_secs(1));
    assert_eq!(options.batch_max_duration, Duration::from_secs(10));
    assert_eq!(options.preference_policy, PreferencePolicy::Respect);
    assert_eq!(options.min_values_policy, MinValuesPolicy::Strict);
    assert_eq!(options.expiration, ExpirationRules::default());
    assert_eq!(options.planner_threads, 1);
    assert!(!options.ignore_dra_requests);
    assert_eq!(options.scheduler_names, SchedulerNames::All);
    assert_eq!(
        options.feature_gates,
        FeatureGates {
            node_repair: false,
            reserved_capacity: true,
            spot_to_spot_consolidation: false,
            node_overlay: true,
            static_capacity: false,
            capacity_buffer: false,
            terminate_first_drift: false,
            terminate_first_repair: false,
            pod_deletion_cost_management: false,
            unknown: vec![],
        }
    );
    let leader_election = options.leader_election.unwrap();
    assert_eq!(leader_election.name, "karpenter-leader-election");
    assert_eq!(leader_election.namespace, None);
    assert!(options.hand_over.mode == HandOverMode::Tolerate && !options.dry_run);
    assert_eq!(options.ignored, Vec::<&str>::new());
}

#[test]
fn flags_take_gos_spelling() {
    let options = options(&[
        "--batch-max-duration=1m30s",
        "--hand-over=off",
        "--dry-run",
        "--disable-leader-election=TRUE",
        "--cpu-requests=1001",
        "--feature-gates= NodeRepair=true, NodeOverlay=0,Provider/Own=true",
        "--scheduler-config={podTopologySpread: {defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}}",
        "--memory-limit=100",
        "--scheduler-names=default-scheduler, batch",
        "--expiration-policy=Graceful",
        "--graceful-expiration-timeout=2h",
    ])
    .unwrap();
    let graceful_for = DurationMs::from_seconds(2 * 3600);
    assert_eq!(options.expiration, ExpirationRules { policy: ExpirationPolicy::Graceful, graceful_for });
    assert_eq!(options.batch_max_duration, Duration::from_secs(90));
    assert!(options.hand_over.mode == HandOverMode::Off && options.dry_run);
    let names = ["batch", "default-scheduler", "other"].map(|name| options.scheduler_names.include(name));
    assert_eq!(names, [true, true, false]);
    assert_eq!(options.leader_election, None);
    assert_eq!(options.planner_threads, 2);
    assert!(options.feature_gates.node_repair && !options.feature_gates.node_overlay);
    assert_eq!(options.feature_gates.unknown, ["Provider/Own"]);
    assert_eq!(options.scheduler_config.default_constraints[0].topology_key, "zone");
    assert_eq!(options.ignored, ["memory-limit"]);
}

#[test]
fn an_error_names_flag_value_and_reason() {
    for (args, message) in [
        (&["--kube-client-qps=0"][..], "--kube-client-qps: \"0\" must be above zero"),
        (&["--preference-policy=respect"], "--preference-policy: \"respect\" must be Respect or Ignore"),
        (&["--prioritized-list-policy=cheap"], "--prioritized-list-policy: \"cheap\" must be order or price"),
        (&["--scheduler-names=a,,b"], "--scheduler-names: \"a,,b\" has an empty name"),
        (&["--min-values-policy="], "--min-values-policy: \"\" must be Strict or BestEffort"),
        (&["--feature-gates=NodeRepair"], "--feature-gates: \"NodeRepair\" must have the form Name=true"),
        (&["--feature-gates=NodeRepair=yes"], "--feature-gates: \"NodeRepair=yes\" must be true or false"),
        (
            &["--scheduler-config=podTopologySpread: {defaultConstraints: [{maxSkew: 0}]}"],
            "--scheduler-config: \"podTopologySpread.defaultConstraints[0].topologyKey\" is missing",
        ),
        (&["--scheduler-config={\"plugins\": []}"], "--scheduler-config: \"the document\" unknown field \"plugins\""),
        (&["--expiration-policy=graceful"], "--expiration-policy: \"graceful\" must be Forceful or Graceful"),
        (&["--log-format=xml"], "--log-format: \"xml\" must be json or text"),
        (&["--batch-idle-duration=-1s"], "--batch-idle-duration: \"-1s\" must not be negative"),
        (
            &["--batch-idle-duration=20s"],
            "--batch-idle-duration: \"20s\" must not be longer than --batch-max-duration, 10s",
        ),
    ] {
        assert_eq!(options(args).unwrap_err().to_string(), message);
    }
}

#[test]
fn what_clap_refuses_names_the_flag_too() {
    for args in [["--batch-max-duration=10"], ["--metrics-port=70000"], ["--hand-over=yes"]] {
        let flag = args[0].split('=').next().unwrap();
        let error = Cli::try_parse_from(std::iter::once("dovetail").chain(args)).unwrap_err().to_string();
        assert!(error.contains(flag), "{error}");
    }
}

#[test]
fn karpenters_options_of_1_15_are_known() {
    for (args, ignored) in
        [(&["--enable-profiling", "--dry-run"][..], &["enable-profiling"][..]), (&["--enable-profiling=false"], &[])]
    {
        assert_eq!(options(args).unwrap().ignored, ignored, "{args:?}");
    }
    for (args, is_legacy) in
        [(&["--legacy-node-repair"][..], true), (&["--legacy-node-repair=false"], false), (&[], false)]
    {
        assert_eq!(options(args).unwrap().legacy_node_repair, is_legacy, "{args:?}");
    }
    let gates = "--feature-gates=TerminateFirstDrift=true,TerminateFirstRepair=true,PodDeletionCostManagement=true";
    let gates = options(&[gates]).unwrap().feature_gates;
    assert!(gates.terminate_first_drift && gates.terminate_first_repair && gates.pod_deletion_cost_management);
    assert_eq!(gates.unknown, [""; 0]);
    assert_eq!(
        gates.to_string(),
        "CapacityBuffer=false,NodeOverlay=true,NodeRepair=false,PodDeletionCostManagement=true,ReservedCapacity=true,\
         SpotToSpotConsolidation=false,StaticCapacity=false,TerminateFirstDrift=true,TerminateFirstRepair=true"
    );
}
