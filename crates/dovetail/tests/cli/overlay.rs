//! `dovetail overlay` on files: what overlays describe, mistakes in them, and what drivers made of it.

use serde_json::{Value, json};

use crate::manifests::{list, pod};
use crate::scratch::Scratch;

fn overlay(name: &str, family: &str, weight: i32, model: &str) -> Value {
    let device = json!({"name": "gpu-{index}", "replicas": 2, "attributes": {"model": {"string": model}}});
    json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": name},
        "spec": {
            "weight": weight,
            "requirements": [{"key": "karpenter.kwok.sh/instance-family", "operator": "In", "values": [family]}],
            "dynamicResources": {"resourceSliceTemplates": [
                {"metadata": {"name": "gpus"}, "spec": {"driver": "gpu.example.com", "devices": [device]}}]},
        },
    })
}

fn run(command: &str, objects: &[Value], more: &[&str]) -> (i32, String, String) {
    let scratch = Scratch::new();
    scratch.write("objects.json", &list(objects));
    let mut arguments = vec!["overlay", command, "-f", "objects.json"];
    arguments.extend(more);
    let ran = scratch.run(&arguments);
    (ran.code, ran.stdout, ran.stderr)
}

#[test]
fn render_tells_types_drivers_and_overlays_and_gives_the_slices() {
    let (code, stdout, _) = run("render", &[overlay("o", "m", 1, "x1")], &["--type", "m-8x-amd64-linux", "-o", "json"]);
    assert_eq!(code, 0);
    let rendered: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(rendered[0]["instanceTypes"], json!(["m-8x-amd64-linux"]));
    let pool = &rendered[0]["pools"][0];
    assert_eq!((&pool["driver"], &pool["templates"]), (&json!("gpu.example.com"), &json!(["o/gpus"])));
    assert_eq!(pool["resourceSlices"][0]["spec"]["devices"][1]["name"], "gpu-1");
}

#[test]
fn render_says_who_describes_a_type_and_in_what_they_differ() {
    let mut learned = overlay("learned-one", "m", 1, "x1");
    learned["metadata"]["labels"] = json!({"dovetail.sh/generated": "true"});
    let mut richer = overlay("richer", "m", 2, "x1");
    let devices = &mut richer["spec"]["dynamicResources"]["resourceSliceTemplates"][0]["spec"]["devices"][0];
    devices["capacity"] = json!({"memory": {"value": "80Gi"}});
    let mut fewer = overlay("fewer", "m", 1, "x1");
    fewer["spec"]["dynamicResources"]["resourceSliceTemplates"][0]["spec"]["devices"][0]["replicas"] = json!(1);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1", "labels": {
        "karpenter.sh/nodepool": "default", "node.kubernetes.io/instance-type": "m-8x-amd64-linux"}}});
    let device = |index: usize| json!({"name": format!("gpu-{index}"), "attributes": {"model": {"string": "x2"}}});
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
        "spec": {"driver": "gpu.example.com", "nodeName": "worker-1", "devices": [device(0), device(1)],
                 "pool": {"name": "worker-1", "generation": 1, "resourceSliceCount": 1}},
    });
    let why = ["--why", "m-8x-amd64-linux"];
    let same = overlay("same", "m", 5, "x1");
    let (code, stdout, _) = run("render", &[same.clone(), learned.clone()], &why);
    let rows = |text: &str| -> Vec<String> {
        text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(code, 0, "{stdout}");
    assert_eq!(
        rows(&stdout),
        ["default gpu.example.com nodeoverlay/same 2 this", "nodeoverlay/learned-one (learned) 2 agrees"]
    );
    let objects = [same, learned, richer, fewer, overlay("other", "m", 3, "x2"), node, slice];
    let (code, stdout, _) = run("render", &objects, &why);
    assert_eq!(code, 1, "{stdout}");
    let mut found = rows(&stdout);
    assert_eq!(found.remove(0), "default gpu.example.com nodeoverlay/same 2 this");
    found.sort();
    assert_eq!(
        found,
        [
            "node/worker-1 (published) 2 differs: device gpu-0 has \"x2\" for attribute model, not \"x1\"",
            "nodeoverlay/fewer 1 differs: device gpu-1 is missing",
            "nodeoverlay/learned-one (learned) 2 agrees",
            "nodeoverlay/other 2 differs: device gpu-0 has \"x2\" for attribute model, not \"x1\"",
            "nodeoverlay/richer 2 differs: device gpu-0 has 80Gi of memory too",
        ]
    );
    let (code, _, stderr) = run("render", &objects, &["--why", "m-8x"]);
    assert_eq!((code, stderr.as_str()), (1, "error: provider kwok has no instance type m-8x there\n"));
}

#[test]
fn render_of_a_type_compares_overlays_with_the_templates_of_the_provider() {
    let scratch = Scratch::new();
    let run = |arguments: &[&str]| scratch.run(&[&["overlay", "render", "--provider", "aws"], arguments].concat());
    let overlay = json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "mine"},
    "spec": {
        "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["p5.48xlarge"]}],
        "dynamicResources": {"resourceSliceTemplates": [{"metadata": {"name": "t"}, "spec": {
            "driver": "gpu.nvidia.com", "devices": [{"name": "mine-{index}", "replicas": 7}]}}]},
    }});
    scratch.write("overlay.json", &overlay.to_string());
    let ran = run(&["-f", "overlay.json", "--why", "p5.48xlarge", "-o", "json"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let said = ran.json();
    let of = |driver: &str| {
        let found = said.as_array().unwrap().iter().find(|it| it["driver"] == driver).unwrap();
        found["sources"].as_array().unwrap().clone()
    };
    let gpus = of("gpu.nvidia.com");
    assert_eq!((&gpus[0]["from"], &gpus[0]["verdict"]), (&json!("nodeoverlay/mine"), &json!("Used")));
    assert_eq!((&gpus[1]["from"], &gpus[1]["devices"]), (&json!("the provider"), &json!(8)));
    assert_eq!(gpus[1]["verdict"], "Differs");
    let [nics] = of("dra.net").try_into().unwrap();
    assert_eq!((&nics["from"], &nics["verdict"]), (&json!("the provider"), &json!("Used")));
}

#[test]
fn lint_finds_what_nobody_else_tells() {
    let mut misspelt = overlay("misspelt", "m", 1, "x1");
    misspelt["spec"]["dynamicResources"]["resourceSliceTemplates"][0]["spec"]["device"] = json!([]);
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "x2"},
        "spec": {"selectors": [{"cel": {"expression": "device.attributes['gpu.example.com'].model == 'x2'"}}]},
    });
    let mut price_of_nothing = overlay("price-of-nothing", "z", 1, "x1");
    price_of_nothing["spec"].as_object_mut().unwrap().remove("dynamicResources");
    let mut says_nothing = price_of_nothing.clone();
    says_nothing["metadata"]["name"] = json!("says-nothing");
    price_of_nothing["spec"]["price"] = json!("1");
    let mut no_devices = overlay("no-devices", "c", 9, "x1");
    let of_none = &mut no_devices["spec"]["dynamicResources"]["resourceSliceTemplates"][0]["spec"]["devices"][0];
    of_none["replicas"] = json!(0);
    no_devices["spec"]["requirements"][0]["key"] = json!("karpenter.kwok.sh/instance-cpu");
    no_devices["spec"]["requirements"][0]["values"] = json!(["1"]);
    let mut of_rack = overlay("of-rack", "c", 1, "x1");
    let template = &mut of_rack["spec"]["dynamicResources"]["resourceSliceTemplates"][0]["spec"];
    template["driver"] = json!("net.example.com");
    template["scope"] = json!("Domain");
    let keys = json!(["topology.kubernetes.io/zone", "example.com/rack"]);
    template["nodeSelector"] = json!({"nodeSelectorTerms": [{ "matchLabelKeys": keys }]});
    // Its devices have such an attribute, with a value that nobody knows yet.
    let of_root = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "of-root"},
        "spec": {"selectors": [{"cel": {"expression": "device.attributes['example.com'].root == 'r'"}}]},
    });
    let mut overdrawn = overlay("overdrawn", "m", 7, "x1");
    let spec = &mut overdrawn["spec"]["dynamicResources"]["resourceSliceTemplates"][0]["spec"];
    let of_memory = |value: &str| json!({"memory": {"value": value}});
    let draws = |value: &str| json!([{"counterSet": "all", "counters": of_memory(value)}]);
    spec["driver"] = json!("mig.example.com");
    spec["sharedCounters"] = json!([{"name": "all", "counters": of_memory("80Gi")}]);
    spec["devices"] = json!([
        {"name": "whole", "consumesCounters": draws("80Gi")},
        {"name": "large-{index}", "replicas": 2, "consumesCounters": draws("81Gi")},
    ]);
    overdrawn["spec"]["dynamicResources"]["attributeBindings"] = json!([{
        "attributes": ["example.com/root"],
        "deviceSelectors": [{"resourceSliceTemplate": "gpus", "device": "whole"}],
    }]);
    let objects = [
        overdrawn,
        price_of_nothing,
        says_nothing,
        no_devices,
        misspelt,
        overlay("covered", "c", 1, "x1"),
        overlay("covers", "c", 2, "x1"),
        overlay("matches-nothing", "z", 1, "x1"),
        overlay("conflict-a", "s", 3, "x1"),
        overlay("conflict-b", "s", 3, "x3"),
        of_rack,
        class,
        of_root,
    ];
    let (code, stdout, _) = run("lint", &objects, &[]);
    assert_eq!(code, 1);
    let expected = [
        "nodeoverlay/conflict-a: conflict with another overlay: nodeoverlay/conflict-b of equal weight also sets the devices \
         of gpu.example.com of instance type s-128x-amd64-linux in nodepool/default",
        "nodeoverlay/misspelt: spec.dynamicResources.resourceSliceTemplates[0].spec.device: is not a known field, and is \
         dropped (did you mean devices?)",
        "nodeoverlay/matches-nothing: spec.requirements: no instance type of any NodePool matches",
        "nodeoverlay/covered: its templates of gpu.example.com are never used: overlays that come first describe that \
         driver on every instance type that matches",
        "nodeoverlay/price-of-nothing: spec.requirements: no instance type of any NodePool matches",
        "nodeoverlay/no-devices: its templates of gpu.example.com come to no device on any instance type",
        "nodeoverlay/of-rack: matchLabelKeys of resourceSliceTemplate gpus: no machine that it describes has the label \
         example.com/rack, so nobody can use its devices; add it to the NodePool's labels or requirements",
        "nodeoverlay/overdrawn: device large-0 of mig.example.com consumes 81Gi of counter memory of counter set all, which has \
         80Gi, so no claim can get it; so it is with 1 more device",
        "nodeoverlay/says-nothing: spec: it says nothing of price, capacity or dynamicResources",
        "deviceclass/x2: none of the 9 different devices that overlays describe meets its selectors",
    ];
    let mut lines: Vec<&str> = stdout.lines().collect();
    let mut expected = expected.to_vec();
    lines.sort_unstable();
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

#[test]
fn lint_and_plan_say_when_no_pod_of_a_driver_could_run_on_the_machines() {
    let mut gpus = overlay("o", "m", 1, "x1");
    let resources = &mut gpus["spec"]["dynamicResources"];
    resources["drivers"] = json!([{"name": "gpu.example.com", "daemonSet": {"namespace": "gpu", "name": "driver"}}]);
    let driver = |node_selector: Value| {
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "driver", "namespace": "gpu"},
            "spec": {"selector": {}, "template": {"metadata": {},
                "spec": {"nodeSelector": node_selector, "containers": [{"name": "c"}]}}}})
    };
    let of_windows = driver(json!({"kubernetes.io/os": "windows"}));
    let expected = "nodeoverlay/o: spec.dynamicResources.drivers[gpu.example.com].daemonSet: no pod of \
                    daemonset/gpu/driver can run on machines of instance type m-128x-amd64-linux of nodepool/default: it \
                    selects kubernetes.io/os In [windows], and the machines have In [linux]; nor on those of";
    let (code, stdout, _) = run("lint", &[gpus.clone(), of_windows.clone()], &[]);
    assert_eq!((code, stdout.lines().count()), (1, 1), "{stdout}");
    assert!(stdout.starts_with(expected), "{stdout}");
    let (code, stdout, _) = run("lint", &[gpus.clone(), driver(json!({}))], &[]);
    assert_eq!((code, stdout.as_str()), (0, "1 overlay: nothing found\n"));

    let scratch = Scratch::new();
    scratch.write("objects.json", &list(&[gpus, of_windows, pod("a")]));
    let ran = scratch.run(&["plan", "-f", "objects.json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains(expected), "{}", ran.stderr);
}

#[test]
fn explain_says_what_of_the_input_was_refused() {
    let scratch = Scratch::new();
    let mut refused = overlay("o", "m", 1, "x1");
    refused["spec"]["dynamicResources"]["resourceSliceTemplates"][0]["spec"]["devices"][0]["name"] =
        json!("GPU-{index}");
    scratch.write("objects.json", &list(&[refused, pod("a")]));
    let ran = scratch.run(&["explain", "pod", "a", "-f", "objects.json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("device GPU-0, name: \"GPU-0\" is not a lowercase RFC 1123 label"), "{}", ran.stderr);
}

#[test]
fn verify_tells_node_driver_and_difference_and_ends_with_one() {
    let node = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
            "karpenter.sh/nodepool": "default", "node.kubernetes.io/instance-type": "m-8x-amd64-linux"}}})
    };
    let slice = |node: &str, model: &str| {
        let device = |index: usize| json!({"name": format!("gpu-{index}"), "attributes": {"model": {"string": model}}});
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node},
            "spec": {"driver": "gpu.example.com", "nodeName": node, "devices": [device(0), device(1)],
                     "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}},
        })
    };
    let right = [overlay("o", "m", 1, "x1"), node("a"), slice("a", "x1")];
    let (code, stdout, _) = run("verify", &right, &[]);
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.contains("as described"), "{stdout}");
    let wrong = [overlay("o", "m", 1, "x1"), node("a"), slice("a", "x2"), node("silent")];
    let (code, stdout, _) = run("verify", &wrong, &[]);
    assert_eq!(code, 1);
    assert!(stdout.contains("2 differences"), "{stdout}");
    assert!(
        stdout.contains("  gpu.example.com: device gpu-0 has \"x2\" for attribute model, not \"x1\"\n"),
        "{stdout}"
    );
    assert!(stdout.contains("has not published"), "{stdout}");
    let (code, stdout, _) = run("verify", &wrong, &["-o", "json"]);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let drivers = &report["nodes"][0]["drivers"];
    let first = "gpu.example.com: device gpu-0 has \"x2\" for attribute model, not \"x1\"";
    assert_eq!((code, &drivers[0]["state"], &drivers[0]["differences"][0]), (1, &json!("Different"), &json!(first)));
    assert_eq!(report["nodes"][1]["drivers"][0]["state"], "NotPublished");
    let mut of_no_type = node("b");
    of_no_type["metadata"]["labels"]["node.kubernetes.io/instance-type"] = json!("p9.huge");
    let (code, _, stderr) = run("verify", &[overlay("o", "m", 1, "x1"), node("a"), slice("a", "x1"), of_no_type], &[]);
    assert_eq!(code, 1);
    assert_eq!(
        stderr,
        "problem: node/b: instance type p9.huge is not known; --instance-types names a file that has it\n"
    );
    let (code, _, stderr) = run("verify", &wrong, &["--node", "nobody"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("there is no node nobody in the input"), "{stderr}");
}

fn published_node() -> [Value; 2] {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1", "labels": {
        "karpenter.sh/nodepool": "default", "node.kubernetes.io/instance-type": "m-8x-amd64-linux"}}});
    let device = |index: usize| {
        json!({"name": format!("gpu-{index}"), "attributes": {
            "model": {"string": "x1"}, "uuid": {"string": format!("GPU-5d1d46ee-c7f8-fb08-137a-026f11ab6dd{index}")},
            "resource.kubernetes.io/pcieRoot": {"string": format!("pci000{index}:00")}}})
    };
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "worker-1-gpu"},
        "spec": {"driver": "gpu.example.com", "nodeName": "worker-1", "devices": [device(1), device(0)],
                 "pool": {"name": "worker-1", "generation": 1, "resourceSliceCount": 1}},
    });
    [node, slice]
}

#[test]
fn what_capture_writes_renders_and_verifies_against_what_it_was_written_from() {
    let scratch = Scratch::new();
    scratch.write("node.json", &list(&published_node()));
    let captured = scratch.run(&["overlay", "capture", "-f", "node.json"]);
    assert_eq!((captured.code, captured.stderr.as_str()), (0, ""));
    assert!(captured.stdout.starts_with("# gpu.example.com: left out, as only this machine has it: uuid\n"));
    scratch.write("overlay.yaml", &captured.stdout);
    let rendered = scratch.run(&["overlay", "render", "-f", "overlay.yaml"]);
    assert_eq!(rendered.code, 0, "{rendered:?}");
    assert!(rendered.stdout.contains("2 (2 bound)") && rendered.stdout.contains("m-8x-amd64-linux"), "{rendered:?}");
    let linted = scratch.run(&["overlay", "lint", "-f", "overlay.yaml"]);
    assert_eq!(linted.stdout, "1 overlay: nothing found\n");
    let verified = scratch.run(&["overlay", "verify", "-f", "overlay.yaml", "-f", "node.json"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    assert!(verified.stdout.contains("as described"), "{verified:?}");
}

#[test]
fn lint_refuses_the_placeholder_of_an_overlay_captured_without_its_node() {
    let [_, slice] = published_node();
    let (code, stdout, stderr) = run("capture", &[slice], &["-o", "json"]);
    assert_eq!(code, 0);
    assert!(stderr.contains("the instance type is not known"), "{stderr}");
    let (code, stdout, _) = run("lint", &[serde_json::from_str(&stdout).unwrap()], &[]);
    assert_eq!(code, 1);
    assert_eq!(
        stdout,
        "nodeoverlay/worker-1-devices: spec.requirements: replace-with-the-instance-type stands for the instance types that \
         the overlay is for; put their names in its place\n"
    );
}

#[test]
fn capture_says_what_it_cannot_do() {
    let [node, slice] = published_node();
    let (code, _, stderr) = run("capture", std::slice::from_ref(&node), &[]);
    assert_eq!((code, stderr.as_str()), (1, "error: there is no ResourceSlice in the input\n"));
    let (code, _, stderr) = run("capture", &[node, slice], &["--driver", "nic.example.com"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("no driver nic.example.com has published a complete pool"), "{stderr}");
    let ran = Scratch::new().run(&["overlay", "capture"]);
    assert_eq!(ran.code, 2, "{ran:?}");
}

#[test]
fn learn_lists_what_is_published_and_not_described_and_what_was_generated() {
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": class}}}});
    let [node, slice] = published_node();
    let objects = [pool, node, slice];
    let (code, stdout, stderr) = run("learn", &objects, &[]);
    assert_eq!((code, stderr.as_str()), (1, ""));
    let columns: Vec<&str> = stdout.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(columns, ["gpu.example.com", "m-8x-amd64-linux", "KWOKNodeClass/default", "worker-1", "2"], "{stdout}");

    let mut generated = overlay("generated-x", "m", 1, "x1");
    generated["metadata"]["labels"] = json!({"dovetail.sh/generated": "true"});
    generated["metadata"]["annotations"] = json!({"dovetail.sh/generated-from": "a machine"});
    let with = |more: &[Value]| [&objects[..], more].concat();
    let (code, stdout, _) = run("learn", &with(&[generated.clone()]), &[]);
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.contains("generated-x         a machine   in effect"), "{stdout}");
    // A person's overlay of the same weight wins without a conflict.
    let (code, stdout, stderr) = run("learn", &with(&[generated, overlay("a-persons", "m", 1, "x2")]), &[]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("superseded"), "{stdout}");
    let (code, _, stderr) = run("learn", &objects[1..], &[]);
    assert!(code == 1 && stderr.contains("there is no NodePool in the input"), "{stderr}");
}
