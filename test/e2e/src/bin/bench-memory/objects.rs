//! The objects of the cluster: what a Deployment's pods and cloud nodes look like when `kubectl get -o json` shows
//! them.

use serde_json::{Value, json};

/// How large the cluster is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub pods: usize,
    pub annotation_bytes: usize,
    pub deployments: usize,
    pub nodes: usize,
}

/// How many annotations a pod's are split into.
const ANNOTATIONS: usize = 10;
/// Deployments in one namespace.
const PER_NAMESPACE: usize = 10;

/// Text with names left open, so that a pod costs its sender no more than copying.
pub(crate) struct Template(Vec<Piece>);

enum Piece {
    Text(String),
    Slot(usize),
}

impl Template {
    /// Of JSON in which `<0>`, `<1>` and so on stand for names.
    fn new(json: &Value) -> Self {
        let mut pieces = Vec::new();
        let text = json.to_string();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once('<') {
            let slot = after.split_once('>').and_then(|(slot, after)| Some((slot.parse().ok()?, after)));
            match slot {
                Some((slot, after)) => {
                    pieces.extend([Piece::Text(before.to_owned()), Piece::Slot(slot)]);
                    rest = after;
                }
                None => {
                    pieces.push(Piece::Text(format!("{before}<")));
                    rest = after;
                }
            }
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Self(pieces)
    }

    fn fill(&self, names: &[String]) -> String {
        let texts = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => text.as_str(),
            Piece::Slot(slot) => names.get(*slot).map_or("", String::as_str),
        });
        texts.collect()
    }
}

/// The cluster's objects by their place in the list.
pub(crate) struct Objects {
    pub size: Size,
    pod: Template,
    node: Template,
}

impl Objects {
    pub(crate) fn new(size: Size) -> Self {
        Self { size, pod: Template::new(&pod(size.annotation_bytes)), node: Template::new(&node()) }
    }

    /// The pod at that place, as JSON. Items of a list do not say of which kind they are.
    pub(crate) fn pod(&self, index: usize) -> String {
        let deployment = index * self.size.deployments / self.size.pods.max(1);
        let hash = letters(deployment, 10);
        let app = format!("app-{deployment:03}");
        let name = format!("{app}-{hash}-{}", letters(index, 5));
        self.pod.fill(&[
            name,
            namespace(deployment),
            app,
            hash,
            uid(1, index),
            uid(2, deployment),
            node_name(index % self.size.nodes),
            // Names of volumes and addresses differ from pod to pod too.
            letters(index, 5),
            address(index),
            format!("{}m", 50 + 10 * (deployment % 40)),
            format!("{}Mi", 64 * (1 + deployment % 30)),
            (1_000_000 + index).to_string(),
            format!("{:02}", index % 60),
            format!("{:064x}", (index as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)),
        ])
    }

    /// The node at that place.
    pub(crate) fn node(&self, index: usize) -> String {
        let zone = ["a", "b", "c"][index % 3].to_owned();
        self.node.fill(&[node_name(index), uid(3, index), zone, address(index), (500_000 + index).to_string()])
    }

    /// The namespace at that place.
    pub(crate) fn namespace(&self, index: usize) -> String {
        let name = namespace(index * PER_NAMESPACE);
        json!({
            "metadata": {
                "name": name, "uid": uid(4, index), "resourceVersion": "100", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"kubernetes.io/metadata.name": name},
            },
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
        })
        .to_string()
    }

    pub(crate) fn namespaces(&self) -> usize {
        self.size.deployments.div_ceil(PER_NAMESPACE)
    }
}

fn namespace(deployment: usize) -> String {
    format!("team-{:02}", deployment / PER_NAMESPACE)
}

fn node_name(index: usize) -> String {
    format!("ip-10-{}-{}-{}.eu-west-1.compute.internal", index >> 16, index >> 8 & 255, index & 255)
}

fn address(index: usize) -> String {
    format!("10.{}.{}.{}", 64 + (index >> 16), index >> 8 & 255, index & 255)
}

/// As in names that controllers make: different for each number, and not in its order.
fn letters(number: usize, count: u32) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let of = (ALPHABET.len() as u64).pow(count);
    // Coprime to 27, so no two numbers below `of` meet.
    let mut rest = (number as u64).wrapping_mul(7_368_787) % of;
    let letter = |_| {
        let letter = ALPHABET[(rest % 27) as usize];
        rest /= 27;
        char::from(letter)
    };
    (0..count).map(letter).collect()
}

fn uid(kind: u32, index: usize) -> String {
    format!("{kind:08x}-5d3c-4f0e-9a41-{index:012x}")
}

/// Text as in annotations of a service mesh or a secrets injector: words, quotes and line ends, which JSON escapes.
fn filler(bytes: usize) -> String {
    let lines = "{\"listener\": \"inbound\", \"cluster\": \"outbound|8080||service\", \"timeout\": \"5s\"}\n";
    let mut text = String::new();
    // What counts is how long it is once it is escaped.
    let escaped = Value::from(lines).to_string().len() - 2;
    for _ in 0..bytes / escaped {
        text.push_str(lines);
    }
    text.extend(std::iter::repeat_n('x', bytes % escaped));
    text
}

fn annotations(bytes: usize) -> Value {
    let each = bytes / ANNOTATIONS;
    let all = (0..ANNOTATIONS).map(|index| {
        let text = filler(each.saturating_sub(96));
        // Each pod's differ.
        (format!("sidecar.example.com/config-{index}"), Value::from(format!("{text}<13>")))
    });
    Value::Object(all.collect())
}

fn managed_fields() -> Value {
    let container = json!({
        ".": {}, "f:env": {".": {}, "k:{\"name\":\"POD_NAME\"}": {".": {}, "f:name": {}, "f:valueFrom": {".": {}, "f:fieldRef": {}}}},
        "f:image": {}, "f:imagePullPolicy": {}, "f:livenessProbe": {".": {}, "f:failureThreshold": {}, "f:httpGet": {".": {},
        "f:path": {}, "f:port": {}, "f:scheme": {}}, "f:periodSeconds": {}, "f:successThreshold": {}, "f:timeoutSeconds": {}},
        "f:name": {}, "f:ports": {".": {}, "k:{\"containerPort\":8080,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {},
        "f:name": {}, "f:protocol": {}}}, "f:resources": {".": {}, "f:limits": {".": {}, "f:memory": {}}, "f:requests": {".": {},
        "f:cpu": {}, "f:memory": {}}}, "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {},
    });
    json!([
        {
            "apiVersion": "v1", "fieldsType": "FieldsV1", "manager": "kube-controller-manager", "operation": "Update",
            "time": "2026-01-01T00:00:<12>Z",
            "fieldsV1": {
                "f:metadata": {
                    "f:annotations": {".": {}, "f:sidecar.example.com/config-0": {}, "f:sidecar.example.com/config-1": {}},
                    "f:generateName": {}, "f:labels": {".": {}, "f:app.kubernetes.io/name": {}, "f:pod-template-hash": {}},
                    "f:ownerReferences": {".": {}, "k:{\"uid\":\"<5>\"}": {}},
                },
                "f:spec": {
                    "f:containers": {"k:{\"name\":\"main\"}": container, "k:{\"name\":\"sidecar\"}": container},
                    "f:dnsPolicy": {}, "f:enableServiceLinks": {}, "f:restartPolicy": {}, "f:schedulerName": {},
                    "f:securityContext": {}, "f:serviceAccount": {}, "f:terminationGracePeriodSeconds": {},
                },
            },
        },
        {
            "apiVersion": "v1", "fieldsType": "FieldsV1", "manager": "kubelet", "operation": "Update", "subresource": "status",
            "time": "2026-01-01T00:01:<12>Z",
            "fieldsV1": {"f:status": {
                "f:conditions": {
                    "k:{\"type\":\"ContainersReady\"}": {".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}},
                    "k:{\"type\":\"Initialized\"}": {".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}},
                    "k:{\"type\":\"Ready\"}": {".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}},
                },
                "f:containerStatuses": {}, "f:hostIP": {}, "f:phase": {}, "f:podIP": {}, "f:podIPs": {}, "f:startTime": {},
            }},
        },
    ])
}

fn container(name: &str, cpu: &str, memory: &str) -> Value {
    json!({
        "name": name, "image": format!("registry.example.com/<2>/{name}:v1.2.3"), "imagePullPolicy": "IfNotPresent",
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
            {"name": "LOG_LEVEL", "value": "info"}, {"name": "ENDPOINT", "value": "http://collector.monitoring:4317"},
        ],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10,
            "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3},
        "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}},
        "securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/config", "readOnly": true},
            {"name": "kube-api-access-<7>", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true},
        ],
    })
}

fn container_status(name: &str) -> Value {
    json!({
        "name": name, "image": format!("registry.example.com/<2>/{name}:v1.2.3"), "ready": true, "started": true, "restartCount": 0,
        "imageID": format!("registry.example.com/<2>/{name}@sha256:4b825dc642cb6eb9a060e54bf8d69288fbee49048b8c11f1a3c2d5e6f708192a"),
        "containerID": "containerd://<13>", "lastState": {}, "state": {"running": {"startedAt": "2026-01-01T00:01:<12>Z"}},
        "allocatedResources": {"cpu": "<9>", "memory": "<10>"},
        "resources": {"requests": {"cpu": "<9>", "memory": "<10>"}, "limits": {"memory": "<10>"}},
    })
}

/// `<0>` name, `<1>` namespace, `<2>` application, `<3>` template hash, `<4>` uid, `<5>` the ReplicaSet's uid, `<6>`
/// node, `<7>` five letters, `<8>` address, `<9>` cpu, `<10>` memory, `<11>` resource version, `<12>` seconds, `<13>` a
/// digest.
fn pod(annotation_bytes: usize) -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:01:<12>Z"});
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let conditions: Vec<Value> = conditions.into_iter().map(condition).collect();
    json!({
        "metadata": {
            "name": "<0>", "generateName": "<2>-<3>-", "namespace": "<1>", "uid": "<4>", "resourceVersion": "<11>",
            "generation": 1, "creationTimestamp": "2026-01-01T00:00:<12>Z",
            "labels": {
                "app.kubernetes.io/name": "<2>", "app.kubernetes.io/instance": "<2>", "app.kubernetes.io/version": "1.2.3",
                "app.kubernetes.io/part-of": "<1>", "pod-template-hash": "<3>",
            },
            "annotations": annotations(annotation_bytes),
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "<2>-<3>", "uid": "<5>", "controller": true,
                "blockOwnerDeletion": true,
            }],
            "managedFields": managed_fields(),
        },
        "spec": {
            "containers": [container("main", "<9>", "<10>"), container("sidecar", "10m", "32Mi")],
            "volumes": [
                {"name": "config", "configMap": {"name": "<2>", "defaultMode": 420}},
                {"name": "kube-api-access-<7>", "projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                ]}},
            ],
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm":
                {"labelSelector": {"matchLabels": {"app.kubernetes.io/name": "<2>"}}, "topologyKey": "kubernetes.io/hostname"}}]}},
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "<2>"}}}],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "nodeName": "<6>", "preemptionPolicy": "PreemptLowerPriority",
            "priority": 0, "restartPolicy": "Always", "schedulerName": "default-scheduler", "securityContext": {},
            "serviceAccount": "default", "serviceAccountName": "default", "terminationGracePeriodSeconds": 30,
        },
        "status": {
            "phase": "Running", "qosClass": "Burstable", "hostIP": "<8>", "podIP": "<8>", "podIPs": [{"ip": "<8>"}],
            "startTime": "2026-01-01T00:00:<12>Z", "observedGeneration": 1,
            "conditions": conditions,
            "containerStatuses": [container_status("main"), container_status("sidecar")],
        },
    })
}

/// `<0>` name, `<1>` uid, `<2>` zone, `<3>` address, `<4>` resource version.
fn node() -> Value {
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": "KubeletReports", "message": "kubelet reports that this is so",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let image = |index: usize| {
        json!({"sizeBytes": 150_000_000 + index, "names": [
            format!("registry.example.com/image-{index}@sha256:4b825dc642cb6eb9a060e54bf8d69288fbee49048b8c11f1a3c2d5e6f708192a"),
            format!("registry.example.com/image-{index}:v1.2.3"),
        ]})
    };
    let images: Vec<Value> = (0..50).map(image).collect();
    json!({
        "metadata": {
            "name": "<0>", "uid": "<1>", "resourceVersion": "<4>", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/instance-type": "m5.8xlarge", "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": "<0>", "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "m5.8xlarge", "topology.kubernetes.io/region": "eu-west-1",
                "topology.kubernetes.io/zone": "eu-west-1<2>",
            },
            "annotations": {"node.alpha.kubernetes.io/ttl": "300", "volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {"providerID": "aws:///eu-west-1<2>/<0>", "podCIDR": "<3>/24"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "<3>"}, {"type": "Hostname", "address": "<0>"}],
            "capacity": {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "100Gi", "pods": "250"},
            "allocatable": {"cpu": "31850m", "memory": "124Gi", "ephemeral-storage": "90Gi", "pods": "250"},
            "conditions": [condition("Ready", "True"), condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
                condition("PIDPressure", "False")],
            "images": images,
            "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "v1.36.0", "kernelVersion": "6.12.0",
                "machineID": "<1>", "systemUUID": "<1>", "bootID": "<1>", "osImage": "Linux", "kubeProxyVersion": "",
                "containerRuntimeVersion": "containerd://2.1.0"},
        },
    })
}
