use model::Interner;

use super::*;

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("fixtures are YAML")
}

/// The alternatives of nodes that reach a PersistentVolume with this metadata and spec.
fn affinity(metadata: &str, spec: &str) -> Vec<String> {
    let object = yaml(&format!("{{metadata: {{name: v{metadata}}}, spec: {spec}}}"));
    let mut interner = Interner::new();
    let volume = persistent_volume(&object, &mut Context::new(&mut interner)).unwrap();
    volume.node_affinity.iter().map(|term| term.expressions.display(&interner).to_string()).collect()
}

#[test]
fn zone_labels_restrict_a_volume_like_its_node_affinity() {
    let terms = "{nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}, {matchExpressions: [{key: b, operator: Exists}]}]}}}";
    assert_eq!(affinity("", "{}"), Vec::<String>::new());
    assert_eq!(affinity("", terms), ["a Exists", "b Exists"]);
    let zone = "topology.kubernetes.io/zone In [z1 z2]";
    let labels = ", labels: {failure-domain.beta.kubernetes.io/zone: z1__z2}";
    assert_eq!(affinity(labels, "{}"), [zone]);
    assert_eq!(affinity(labels, terms), [format!("a Exists, {zone}"), format!("b Exists, {zone}")]);
}

#[test]
fn disks_of_old_kinds_count_for_the_driver_that_serves_them_now() {
    let disk = |spec: &str| {
        let object = yaml(&format!("{{metadata: {{name: v}}, spec: {spec}}}"));
        let volume = persistent_volume(&object, &mut Context::new(&mut Interner::new())).unwrap();
        (volume.csi_driver.map(|it| it.to_string()), volume.csi_volume_handle.map(|it| it.to_string()))
    };
    let some = |driver: &str, handle: &str| (Some(driver.to_owned()), Some(handle.to_owned()));
    assert_eq!(disk("{csi: {driver: d, volumeHandle: h}}"), some("d", "h"));
    assert_eq!(disk("{awsElasticBlockStore: {volumeID: vol-1}}"), some("ebs.csi.aws.com", "vol-1"));
    assert_eq!(disk("{nfs: {server: s}}"), (None, None));
}

#[test]
fn claims_and_classes_are_read_with_kubernetes_defaults() {
    let claim = persistent_volume_claim(&yaml(
        "{metadata: {name: c, namespace: ns, annotations: {pv.kubernetes.io/bind-completed: 'yes'}}, spec: {storageClassName: '', volumeName: v, accessModes: [ReadWriteOnce]}, status: {phase: Bound}}",
    ))
    .unwrap();
    assert_eq!((claim.storage_class.as_deref(), claim.volume_name.as_deref()), (Some(""), Some("v")));
    assert_eq!((claim.phase, claim.bind_completed), (ClaimPhase::Bound, true));
    let read = |more: &str| {
        let text = format!("{{metadata: {{name: c, namespace: ns{more}");
        let claim = persistent_volume_claim(&yaml(&text)).unwrap();
        (claim.bind_completed, claim.is_being_deleted)
    };
    assert_eq!(read("}, spec: {volumeName: v}, status: {phase: Pending}}"), (false, false));
    assert_eq!(read("}, spec: {volumeName: v}}"), (true, false), "a manifest that nobody has applied yet");
    assert_eq!(read(", deletionTimestamp: '2026-01-01T00:00:00Z'}, status: {phase: Bound}}"), (false, true));
    let mut interner = Interner::new();
    let class = storage_class(
        &yaml(
            "{metadata: {name: s, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}, provisioner: p, allowedTopologies: [{matchLabelExpressions: [{key: failure-domain.beta.kubernetes.io/zone, values: [a, b]}]}]}",
        ),
        &mut Context::new(&mut interner),
    )
    .unwrap();
    assert_eq!((class.binding_mode, class.is_default), (VolumeBindingMode::Immediate, true));
    assert_eq!(class.allowed_topologies[0].display(&interner).to_string(), "topology.kubernetes.io/zone In [a b]");
}

#[test]
fn bad_storage_objects_are_named() {
    let claim =
        persistent_volume_claim(&yaml("{metadata: {name: c, namespace: ns}, spec: {accessModes: [Sometimes]}}"));
    assert_eq!(
        claim.unwrap_err().to_string(),
        "PersistentVolumeClaim ns/c: spec.accessModes[0]: unknown access mode \"Sometimes\""
    );
    let class = storage_class(&yaml("{metadata: {name: s}}"), &mut Context::new(&mut Interner::new()));
    assert_eq!(class.unwrap_err().to_string(), "StorageClass s: provisioner: is missing");
}
