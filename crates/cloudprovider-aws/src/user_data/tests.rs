use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::node_class::kubelet::Expressions;

/// What differs between the machines of these tests.
struct Machine {
    family: AmiFamily,
    user_data: Option<&'static str>,
    kubelet: Value,
    raid0: bool,
    version: Option<&'static str>,
}

impl Machine {
    fn of(family: AmiFamily) -> Self {
        Self { family, user_data: None, kubelet: json!({}), raid0: false, version: None }
    }
}

fn cluster() -> Cluster {
    Cluster {
        name: "test".to_owned(),
        endpoint: "https://test.example.com".to_owned(),
        ca_bundle: Some("Y2E=".to_owned()),
        service_cidr: Some("10.100.0.0/16".to_owned()),
        dns_ip: "10.100.0.10".parse().ok(),
    }
}

fn told(machine: Machine) -> Result<String, Error> {
    told_of(machine, &cluster())
}

fn told_of(machine: Machine, cluster: &Cluster) -> Result<String, Error> {
    let Machine { family, user_data, kubelet, raid0, version } = machine;
    let kubelet = Kubelet::read(kubelet.as_object().unwrap(), family, Expressions::Disabled).unwrap();
    let of_claim = [("team", "a"), ("karpenter.sh/nodepool", "default"), ("kubernetes.io/arch", "amd64")];
    let of_claim = of_claim.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let taint = |key: &str, value: Option<&str>| Taint {
        key: key.to_owned(),
        value: value.map(str::to_owned),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    render(&Boot {
        cluster,
        family,
        user_data,
        kubelet: &kubelet,
        max_pods: kubelet.max_pods.unwrap_or(58),
        labels: &node_labels(&of_claim, family),
        taints: &node_taints(&[taint("gpu", Some("true"))], &[taint("warm-up", None)]),
        instance_store: raid0.then_some(InstanceStorePolicy::Raid0),
        image_version: version,
    })
}

fn check(machine: Machine, expected: Expect) {
    expected.assert_eq(&told(machine).unwrap());
}

/// All that every family can be told.
fn settings() -> Value {
    json!({
        "clusterDNS": ["10.0.0.53"], "maxPods": 20, "cpuCFSQuota": false,
        "kubeReserved": { "memory": "1Gi", "cpu": "200m" }, "systemReserved": { "pid": "100" },
        "evictionHard": { "nodefs.available": "10%", "memory.available": "5%" },
        "evictionSoft": { "memory.available": "8%" }, "evictionSoftGracePeriod": { "memory.available": "1m" },
        "evictionMaxPodGracePeriod": 60, "imageGCHighThresholdPercent": 85, "imageGCLowThresholdPercent": 80,
    })
}

#[test]
fn amazon_linux_2_calls_its_bootstrap_script() {
    check(
        Machine::of(AmiFamily::Al2),
        expect![[r#"
        MIME-Version: 1.0
        Content-Type: multipart/mixed; boundary="//"

        --//
        Content-Type: text/x-shellscript; charset="us-ascii"

        #!/bin/bash -xe
        exec > >(tee /var/log/user-data.log | logger -t user-data -s 2>/dev/console) 2>&1
        /etc/eks/bootstrap.sh 'test' \
          --apiserver-endpoint 'https://test.example.com' \
          --b64-cluster-ca 'Y2E=' \
          --dns-cluster-ip '10.100.0.10' \
          --use-max-pods false \
          --kubelet-extra-args '--node-labels="karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=default,team=a" --register-with-taints="gpu=true:NoSchedule,warm-up=:NoSchedule,karpenter.sh/unregistered=:NoExecute" --max-pods=58'
        --//--
    "#]],
    );
}

#[test]
fn amazon_linux_2_is_told_flags_after_the_users_script() {
    let machine = Machine {
        user_data: Some("#!/bin/bash\r\necho first\r\n"),
        kubelet: settings(),
        raid0: true,
        ..Machine::of(AmiFamily::Al2)
    };
    check(
        machine,
        expect![[r#"
        MIME-Version: 1.0
        Content-Type: multipart/mixed; boundary="//"

        --//
        Content-Type: text/x-shellscript; charset="us-ascii"

        #!/bin/bash
        echo first
        --//
        Content-Type: text/x-shellscript; charset="us-ascii"

        #!/bin/bash -xe
        exec > >(tee /var/log/user-data.log | logger -t user-data -s 2>/dev/console) 2>&1
        /etc/eks/bootstrap.sh 'test' \
          --apiserver-endpoint 'https://test.example.com' \
          --b64-cluster-ca 'Y2E=' \
          --dns-cluster-ip '10.0.0.53' \
          --use-max-pods false \
          --kubelet-extra-args '--node-labels="karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=default,team=a" --register-with-taints="gpu=true:NoSchedule,warm-up=:NoSchedule,karpenter.sh/unregistered=:NoExecute" --max-pods=20 --system-reserved="pid=100" --kube-reserved="cpu=200m,memory=1Gi" --eviction-hard="memory.available<5%,nodefs.available<10%" --eviction-soft="memory.available<8%" --eviction-soft-grace-period="memory.available=1m" --eviction-max-pod-grace-period=60 --image-gc-high-threshold=85 --image-gc-low-threshold=80 --cpu-cfs-quota=false' \
          --local-disks raid0
        --//--
    "#]],
    );
}

#[test]
fn amazon_linux_2023_gets_a_node_config() {
    check(
        Machine::of(AmiFamily::Al2023),
        expect![[r#"
        MIME-Version: 1.0
        Content-Type: multipart/mixed; boundary="//"

        --//
        Content-Type: application/node.eks.aws

        apiVersion: node.eks.aws/v1alpha1
        kind: NodeConfig
        spec:
          cluster:
            apiServerEndpoint: https://test.example.com
            certificateAuthority: Y2E=
            cidr: 10.100.0.0/16
            name: test
          kubelet:
            config:
              clusterDNS:
              - "10.100.0.10"
              maxPods: 58
              registerWithTaints:
              - effect: NoSchedule
                key: gpu
                value: "true"
              - effect: NoSchedule
                key: warm-up
              - effect: NoExecute
                key: karpenter.sh/unregistered
            flags:
            - >-
              --node-labels=karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=default,team=a
        --//--
    "#]],
    );
}

#[test]
fn amazon_linux_2023_takes_all_settings_of_the_kubelet_as_written() {
    let mut kubelet = settings();
    kubelet["topologyManagerPolicy"] = json!("single-numa-node");
    kubelet["logging"] = json!({ "verbosity": 4 });
    let machine = Machine {
        user_data: Some("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet: {}\n"),
        kubelet,
        raid0: true,
        ..Machine::of(AmiFamily::Al2023)
    };
    check(
        machine,
        expect![[r#"
        MIME-Version: 1.0
        Content-Type: multipart/mixed; boundary="//"

        --//
        Content-Type: application/node.eks.aws

        apiVersion: node.eks.aws/v1alpha1
        kind: NodeConfig
        spec:
          kubelet: {}
        --//
        Content-Type: application/node.eks.aws

        apiVersion: node.eks.aws/v1alpha1
        kind: NodeConfig
        spec:
          cluster:
            apiServerEndpoint: https://test.example.com
            certificateAuthority: Y2E=
            cidr: 10.100.0.0/16
            name: test
          instance:
            localStorage:
              strategy: RAID0
          kubelet:
            config:
              clusterDNS:
              - "10.0.0.53"
              cpuCFSQuota: false
              evictionHard:
                memory.available: 5%
                nodefs.available: 10%
              evictionMaxPodGracePeriod: 60
              evictionSoft:
                memory.available: 8%
              evictionSoftGracePeriod:
                memory.available: 1m
              imageGCHighThresholdPercent: 85
              imageGCLowThresholdPercent: 80
              kubeReserved:
                cpu: 200m
                memory: 1Gi
              logging:
                verbosity: 4
              maxPods: 20
              registerWithTaints:
              - effect: NoSchedule
                key: gpu
                value: "true"
              - effect: NoSchedule
                key: warm-up
              - effect: NoExecute
                key: karpenter.sh/unregistered
              systemReserved:
                pid: "100"
              topologyManagerPolicy: single-numa-node
            flags:
            - >-
              --node-labels=karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=default,team=a
        --//--
    "#]],
    );
}

#[test]
fn parts_of_a_users_message_stay_as_they_are() {
    let message = "MIME-Version: 1.0\nContent-Type: multipart/mixed;\n boundary=\"X\"\n\nignored\n--X\nContent-Type: \
                   text/cloud-config\nX-Other: 1\n\n--//\npackages: [jq]\n--X\nContent-Type: application/node.eks.aws\n\nkind: \
                   NodeConfig\n--X--\nignored\n";
    let machine = Machine { user_data: Some(message), ..Machine::of(AmiFamily::Al2023) };
    let text = told(machine).unwrap();
    let (head, rest) = text.split_once("spec:").unwrap();
    expect![[r#"
        MIME-Version: 1.0
        Content-Type: multipart/mixed; boundary="///"

        --///
        Content-Type: text/cloud-config
        X-Other: 1

        --//
        packages: [jq]
        --///
        Content-Type: application/node.eks.aws

        kind: NodeConfig
        --///
        Content-Type: application/node.eks.aws

        apiVersion: node.eks.aws/v1alpha1
        kind: NodeConfig
    "#]]
    .assert_eq(head);
    assert!(rest.ends_with("--///--\n"), "{rest}");
}

#[test]
fn bottlerocket_gets_settings() {
    check(
        Machine::of(AmiFamily::Bottlerocket),
        expect![[r#"
        [settings.kubernetes]
        api-server = "https://test.example.com"
        cluster-certificate = "Y2E="
        cluster-name = "test"
        cluster-dns-ip = "10.100.0.10"
        max-pods = 58

        [settings.kubernetes.node-labels]
        "karpenter.sh/do-not-sync-taints" = "true"
        "karpenter.sh/nodepool" = "default"
        team = "a"

        [settings.kubernetes.node-taints]
        gpu = ["true:NoSchedule"]
        "karpenter.sh/unregistered" = [":NoExecute"]
        warm-up = [":NoSchedule"]
    "#]],
    );
}

#[test]
fn bottlerocket_keeps_the_users_settings_and_comments() {
    let machine = Machine {
        user_data: Some(
            "# Ours.\n[settings.kubernetes]\nmax-pods = 1 # not this\nallowed-unsafe-sysctls = [\"net.*\"]\n\
             [settings.kubernetes.node-labels]\nown = \"b\"\nteam = \"b\"\n\
             [settings.kubernetes.kube-reserved]\nmemory = \"2Gi\"\nephemeral-storage = \"1Gi\"\n\
             [settings.kernel]\nlockdown = \"integrity\"\n",
        ),
        kubelet: settings(),
        raid0: true,
        version: Some("1.45.9"),
        ..Machine::of(AmiFamily::Bottlerocket)
    };
    check(
        machine,
        expect![[r##"
        # Ours.
        [settings.kubernetes]
        max-pods = 20
        allowed-unsafe-sysctls = ["net.*"]
        api-server = "https://test.example.com"
        cluster-certificate = "Y2E="
        cluster-name = "test"
        cluster-dns-ip = "10.0.0.53"
        eviction-max-pod-grace-period = 60
        image-gc-high-threshold-percent = "85"
        image-gc-low-threshold-percent = "80"
        cpu-cfs-quota-enforced = false
        [settings.kubernetes.node-labels]
        own = "b"
        team = "a"
        "karpenter.sh/do-not-sync-taints" = "true"
        "karpenter.sh/nodepool" = "default"

        [settings.kubernetes.node-taints]
        gpu = ["true:NoSchedule"]
        "karpenter.sh/unregistered" = [":NoExecute"]
        warm-up = [":NoSchedule"]

        [settings.kubernetes.system-reserved]
        pid = "100"

        [settings.kubernetes.kube-reserved]
        cpu = "200m"
        memory = "1Gi"

        [settings.kubernetes.eviction-hard]
        "memory.available" = "5%"
        "nodefs.available" = "10%"

        [settings.kubernetes.eviction-soft]
        "memory.available" = "8%"

        [settings.kubernetes.eviction-soft-grace-period]
        "memory.available" = "1m"
        [settings.kernel]
        lockdown = "integrity"

        [settings.bootstrap-commands.000-mount-instance-storage]
        commands = [["apiclient", "ephemeral-storage", "init"], ["apiclient", "ephemeral-storage", "bind", "--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]]
        essential = true
        mode = "always"
    "##]],
    );
}

#[test]
fn newer_bottlerocket_images_bind_directories_by_themselves() {
    for (version, names_directories) in [
        (Some("v1.20.0"), true),
        (Some("1.45.9-aws-k8s"), true),
        (Some("1.46.0"), false),
        (Some("1.100.0"), false),
        (Some("2.0.0"), false),
        (Some("latest"), false),
        (None, false),
    ] {
        let text = told(Machine { raid0: true, version, ..Machine::of(AmiFamily::Bottlerocket) }).unwrap();
        assert_eq!(text.contains("--dirs"), names_directories, "{version:?}");
    }
}

#[test]
fn windows_runs_the_users_text_first() {
    let machine = Machine {
        user_data: Some("Write-Output 'first'\n"),
        kubelet: json!({ "podsPerCore": 10 }),
        ..Machine::of(AmiFamily::Windows2022)
    };
    check(
        machine,
        expect![[r#"
        <powershell>
        Write-Output 'first'
        [string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"
        & $EKSBootstrapScriptFile -EKSClusterName 'test' -APIServerEndpoint 'https://test.example.com' -Base64ClusterCA 'Y2E=' -KubeletExtraArgs '--node-labels="karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=default,team=a" --register-with-taints="gpu=true:NoSchedule,warm-up=:NoSchedule,karpenter.sh/unregistered=:NoExecute" --max-pods=58 --pods-per-core=10' -DNSClusterIP '10.100.0.10'
        </powershell>
    "#]],
    );
}

#[test]
fn a_custom_image_is_told_what_the_user_says_and_nothing_else() {
    let machine = Machine { user_data: Some("anything\r\n"), ..Machine::of(AmiFamily::Custom) };
    assert_eq!(told(machine).unwrap(), "anything\r\n");
    assert_eq!(told(Machine::of(AmiFamily::Custom)).unwrap(), "");
}

#[test]
fn a_cluster_of_ipv6_says_so_and_quotes_end_no_word() {
    let cluster = Cluster { name: "it's".to_owned(), dns_ip: "fd00::a".parse().ok(), ..cluster() };
    let text = told_of(Machine::of(AmiFamily::Al2), &cluster).unwrap();
    assert!(text.contains(r"bootstrap.sh 'it'\''s'") && text.contains("--ip-family ipv6"), "{text}");
    let text = told_of(Machine::of(AmiFamily::Windows2025), &cluster).unwrap();
    assert!(text.contains("-EKSClusterName 'it''s'") && text.contains("-DNSClusterIP 'fd00::a'"), "{text}");
}

#[test]
fn what_is_not_in_the_familys_form_is_refused_with_the_reason() {
    for (family, user_data, expected) in [
        (
            AmiFamily::Al2023,
            "MIME-Version: 1.0\n",
            "spec.userData is a MIME message that cannot be read: no empty line ends its headers",
        ),
        (
            AmiFamily::Al2,
            "MIME-Version: 1.0\n\nx",
            "spec.userData is a MIME message that cannot be read: it has no Content-Type",
        ),
        (
            AmiFamily::Al2,
            "Content-Type: multipart/mixed\n\nx",
            "spec.userData is a MIME message that cannot be read: its Content-Type names no boundary",
        ),
        (
            AmiFamily::Al2,
            "Content-Type: multipart/mixed; boundary=a\n\nx",
            "spec.userData is a MIME message that cannot be read: it has no parts",
        ),
        (
            AmiFamily::Al2,
            "Content-Type: multipart/mixed; boundary=a\n\n--a\n\nx\n",
            "spec.userData is a MIME message that cannot be read: its last part does not end",
        ),
        (
            AmiFamily::Bottlerocket,
            "settings = 1",
            "spec.userData is not TOML as Bottlerocket takes it: settings is not a table",
        ),
    ] {
        let error = told(Machine { user_data: Some(user_data), ..Machine::of(family) }).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let error = told(Machine { user_data: Some("a = "), ..Machine::of(AmiFamily::Bottlerocket) }).unwrap_err();
    assert!(matches!(error, Error::Toml(_)), "{error}");
    let unknown = Cluster { service_cidr: None, ..cluster() };
    assert_eq!(told_of(Machine::of(AmiFamily::Al2023), &unknown), Err(Error::ServiceCidrUnknown));
}

#[test]
fn ec2_takes_no_more_than_its_limit() {
    assert_eq!(encode("ab").unwrap(), "YWI=");
    assert!(encode(&"a".repeat(MAX_BYTES)).is_ok());
    assert_eq!(encode(&"a".repeat(MAX_BYTES + 1)), Err(Error::TooLarge { bytes: MAX_BYTES + 1 }));
}

#[test]
fn labels_that_kubelets_may_not_set_are_left_out() {
    let given = [
        "kubernetes.io/os",
        "node-restriction.kubernetes.io/a",
        "x.k8s.io/b",
        "topology.k8s.aws/zone-id",
        "mykubernetes.io/c",
    ];
    let given = given.map(|key| (key.to_owned(), "v".to_owned())).into();
    let keys = |family| node_labels(&given, family).into_keys().collect::<Vec<_>>();
    assert_eq!(keys(AmiFamily::Custom), ["mykubernetes.io/c", "topology.k8s.aws/zone-id"]);
    assert_eq!(
        keys(AmiFamily::Al2023),
        ["karpenter.sh/do-not-sync-taints", "mykubernetes.io/c", "topology.k8s.aws/zone-id"]
    );
}

#[test]
fn the_taint_of_nodes_that_are_not_registered_is_there_once() {
    let unregistered = node_taints(&[], &[]);
    assert_eq!(unregistered.len(), 1);
    assert_eq!(node_taints(&unregistered, &[]), unregistered);
}
