//! The questions: one pod on one node, feasible ones and refusals.

use serde_json::{Value, json};

/// Cases that grow; upstream is not asked further once it did not finish one.
pub(crate) struct Family {
    pub title: &'static str,
    pub cases: Vec<Case>,
}

/// Objects, and what becomes of the pod.
pub(crate) struct Case {
    pub name: String,
    pub slices: Vec<Value>,
    /// Drivers; each has a class of its name.
    pub drivers: Vec<&'static str>,
    pub claims: Vec<Value>,
    pub allocated: Vec<[String; 3]>,
    pub end: End,
}

/// How a question ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The pod fits.
    Allocated,
    /// It does not.
    Refused,
    /// Upstream answers with an error.
    Error,
}

impl Case {
    /// Devices that the node of the question can reach.
    pub(crate) fn devices(&self) -> usize {
        let of = |slice: &Value| slice["spec"]["devices"].as_array().map_or(0, Vec::len);
        self.slices.iter().filter(|slice| slice["spec"]["nodeName"] == NODE).map(of).sum()
    }

    /// Requests of all claims.
    pub(crate) fn requests(&self) -> usize {
        self.claims.iter().filter_map(|claim| claim["spec"]["devices"]["requests"].as_array()).map(Vec::len).sum()
    }

    /// The question, as upstream's program reads it.
    pub(crate) fn question(&self) -> Value {
        json!({
            "name": self.name, "features": features(), "classes": classes(&self.drivers), "slices": self.slices,
            "nodes": [node(NODE)], "pods": [self.claims], "allocatedDevices": self.allocated,
        })
    }
}

pub(crate) const NODE: &str = "node-00000";
pub(crate) const GPU: &str = "gpu.example.com";
const NIC: &str = "nic.example.com";
const ROOT: &str = "resource.kubernetes.io/pcieRoot";

/// The gates that a cluster of 1.37 has on by default, as far as the allocator knows them.
pub(crate) fn features() -> Vec<&'static str> {
    use dra_types::{Gates, KubernetesMinor};
    Gates::defaults(KubernetesMinor::V1_37).iter().map(dra_types::Gate::name).collect()
}

/// A node.
pub(crate) fn node(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
}

/// For each driver a class that selects its devices.
pub(crate) fn classes(drivers: &[&str]) -> Vec<Value> {
    let class = |driver: &&str| {
        let selector = json!({"cel": {"expression": format!("device.driver == \"{driver}\"")}});
        json!({"metadata": {"name": driver}, "spec": {"selectors": [selector]}})
    };
    drivers.iter().map(class).collect()
}

/// A slice that is the whole pool of a node.
pub(crate) fn slice(driver: &str, node: &str, devices: &[Value]) -> Value {
    json!({
        "metadata": {"name": format!("{node}-{driver}")},
        "spec": {"driver": driver, "nodeName": node, "devices": devices,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}},
    })
}

/// A GPU with the attributes that real drivers publish; no two are quite the same.
pub(crate) fn gpu(index: usize, root: usize) -> Value {
    json!({
        "name": format!("gpu-{index}"),
        "attributes": {
            "type": {"string": "gpu"}, "productName": {"string": "NVIDIA A100-SXM4-40GB"},
            "architecture": {"string": "Ampere"}, "brand": {"string": "Nvidia"},
            "cudaComputeCapability": {"version": "8.0.0"}, "cudaDriverVersion": {"version": "12.2.0"},
            "driverVersion": {"version": "535.104.5"}, "index": {"int": index},
            "uuid": {"string": format!("GPU-{index:08}-0000")}, ROOT: {"string": format!("pci0000:{root:02}")},
        },
        "capacity": {"memory": {"value": "40Gi"}, "multiprocessors": {"value": "108"}},
    })
}

fn nic(index: usize, root: usize) -> Value {
    json!({
        "name": format!("nic-{index}"),
        "attributes": {"rdma": {"bool": true}, "index": {"int": index}, ROOT: {"string": format!("pci0000:{root:02}")}},
    })
}

fn gpus(count: usize) -> Vec<Value> {
    (0..count).map(|index| gpu(index, index)).collect()
}

fn nics(count: usize) -> Vec<Value> {
    (0..count).map(|index| nic(index, index)).collect()
}

/// A request for so many devices of a driver.
pub(crate) fn request(name: &str, driver: &str, count: usize) -> Value {
    json!({"name": name, "exactly": {"deviceClassName": driver, "allocationMode": "ExactCount", "count": count}})
}

/// A claim, numbered.
pub(crate) fn claim(index: usize, requests: &[Value], constraints: &[Value]) -> Value {
    json!({
        "metadata": {"name": format!("claim-{index}"), "namespace": "default", "uid": format!("claim-{index}")},
        "spec": {"devices": {"requests": requests, "constraints": constraints}},
    })
}

fn pair(index: usize) -> Value {
    claim(index, &[request("gpu", GPU, 1), request("nic", NIC, 1)], &[json!({"matchAttribute": ROOT})])
}

fn case(name: impl Into<String>, slices: Vec<Value>, claims: Vec<Value>) -> Case {
    let (drivers, allocated) = (vec![GPU, NIC], Vec::new());
    Case { name: name.into(), slices, drivers, claims, allocated, end: End::Allocated }
}

fn refusal(name: impl Into<String>, slices: Vec<Value>, claims: Vec<Value>) -> Case {
    Case { end: End::Refused, ..case(name, slices, claims) }
}

fn taken(mut case: Case, device: &str, indexes: impl Iterator<Item = usize>) -> Case {
    let driver = if device == "gpu" { GPU } else { NIC };
    case.allocated.extend(indexes.map(|index| [driver.to_owned(), NODE.to_owned(), format!("{device}-{index}")]));
    case
}

/// All of them, in the order of printing.
pub(crate) fn families() -> Vec<Family> {
    let eight = || vec![slice(GPU, NODE, &gpus(8))];
    let rooted = || vec![slice(GPU, NODE, &gpus(8)), slice(NIC, NODE, &nics(8))];
    let one = || vec![claim(0, &[request("gpu", GPU, 1)], &[])];
    let many = |count| vec![claim(0, &[request("gpu", GPU, count)], &[])];
    let everywhere = || (0..5000).map(|node| slice(GPU, &format!("node-{node:05}"), &gpus(8))).collect();
    let last_root = case("pair, only the last root is free on both", rooted(), vec![pair(0)]);
    let last_root =
        taken(taken(last_root, "gpu", (0..7).filter(|index| index % 2 == 0)), "nic", (0..7).filter(|i| i % 2 == 1));
    let feasible = vec![
        case("1 of 8 GPUs", eight(), one()),
        taken(case("1 of 8 GPUs, 7 taken", eight(), one()), "gpu", 0..7),
        case("8 of 8 GPUs", eight(), many(8)),
        case("GPU and NIC on one PCIe root, of 8+8", rooted(), vec![pair(0)]),
        last_root,
        case("4 pairs, each on one root, of 8+8", rooted(), (0..4).map(pair).collect()),
        case("1 of 8 GPUs, 5,000 nodes in the cluster", everywhere(), one()),
    ];
    let n_plus_1 = |n| refusal(format!("{} of {n} GPUs", n + 1), vec![slice(GPU, NODE, &gpus(n))], many(n + 1));
    let ones =
        |count: usize| -> Vec<Value> { (0..count).map(|index| claim(index, &[request("gpu", GPU, 1)], &[])).collect() };
    let claims_plus_1 = |n: usize| {
        let claims = ones(n + 1);
        refusal(format!("{} claims of one on {n} GPUs", n + 1), vec![slice(GPU, NODE, &gpus(n))], claims)
    };
    let requests_plus_1 = |n: usize| {
        let requests: Vec<Value> = (0..=n).map(|index| request(&format!("r{index}"), GPU, 1)).collect();
        refusal(
            format!("{} requests of one on {n} GPUs", n + 1),
            vec![slice(GPU, NODE, &gpus(n))],
            vec![claim(0, &requests, &[])],
        )
    };
    let over_asked = |pairs: usize| {
        let mut claims: Vec<Value> = (0..pairs).map(pair).collect();
        claims.push(claim(pairs, &[request("nic", NIC, 1)], &[]));
        let slices = vec![slice(GPU, NODE, &gpus(pairs)), slice(NIC, NODE, &nics(pairs))];
        refusal(format!("{pairs} pairs and one NIC too many"), slices, claims)
    };
    let absent = |n: usize| {
        let constraint = json!({"matchAttribute": "example.com/absent"});
        let claims = vec![claim(0, &[request("gpu", GPU, 2)], &[constraint])];
        refusal(format!("2 of {n} GPUs alike in an attribute that none has"), vec![slice(GPU, NODE, &gpus(n))], claims)
    };
    let unalike = |n: usize| {
        let claims = vec![claim(0, &[request("gpu", GPU, 2)], &[json!({"matchAttribute": ROOT})])];
        refusal(format!("2 of {n} GPUs on one root, each has its own"), vec![slice(GPU, NODE, &gpus(n))], claims)
    };
    // Half as many claims of one GPU as there are, then a claim with a selector that fails on the first GPU, which the
    // claims before leave free at last.
    let failing = |n: usize| {
        let mut devices = gpus(n);
        devices.iter_mut().skip(1).for_each(|gpu| gpu["attributes"]["mig"] = json!({"bool": false}));
        let mut picky = request("mig", GPU, 1);
        let expression = format!("device.attributes[\"{GPU}\"].mig");
        picky["exactly"]["selectors"] = json!([{"cel": {"expression": expression}}]);
        let mut claims = ones(n / 2);
        claims.push(claim(n / 2, &[picky], &[]));
        let refusal = refusal(
            format!("{} claims, then a selector fails on {n} GPUs", n / 2),
            vec![slice(GPU, NODE, &devices)],
            claims,
        );
        Case { end: End::Error, ..refusal }
    };
    // As many, then all NICs of one root, the last of which is taken.
    let all_taken = |n: usize| {
        let nics: Vec<Value> = (0..n).map(|index| nic(index, 0)).collect();
        let all = json!({"name": "all", "exactly": {"deviceClassName": NIC, "allocationMode": "All"}});
        let mut claims = ones(n / 2);
        claims.push(claim(n / 2, &[all], &[json!({"matchAttribute": ROOT})]));
        let slices = vec![slice(GPU, NODE, &gpus(n)), slice(NIC, NODE, &nics)];
        let name = format!("{} claims on {n} GPUs, then all NICs, one is taken", n / 2);
        taken(refusal(name, slices, claims), "nic", n - 1..n)
    };
    vec![
        Family { title: "feasible", cases: feasible },
        Family { title: "one request for n+1 of n", cases: (4..=31).map(n_plus_1).collect() },
        Family { title: "n+1 claims", cases: [4, 6, 8, 16, 32].into_iter().map(claims_plus_1).collect() },
        Family {
            title: "n+1 requests of one claim",
            cases: [4, 6, 8, 16, 31].into_iter().map(requests_plus_1).collect(),
        },
        Family { title: "over-asked pairs", cases: [2, 3, 4, 8, 16].into_iter().map(over_asked).collect() },
        Family {
            title: "no value in common",
            cases: [8, 32, 128].into_iter().flat_map(|n| [absent(n), unalike(n)]).collect(),
        },
        Family {
            title: "a possible error after claims that can be served: failing selectors",
            cases: [4, 6, 8, 16, 32].into_iter().map(failing).collect(),
        },
        Family {
            title: "a possible error after claims that can be served: all devices under a constraint",
            cases: [4, 6, 8, 16, 32].into_iter().map(all_taken).collect(),
        },
    ]
}
