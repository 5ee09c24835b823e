//! What the page about operating devices tells people to watch: a real Prometheus scrapes control plane and controller,
//! and answers every query of the page, of the dashboard, which asks the same, and of the alert rules.
//!
//! Kubelets, drivers and kube-state-metrics do not run here, so what is asked of them is only checked for form.

use std::cell::Cell;
use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use e2e::monitoring::{self, Section};
use e2e::prometheus::{Prometheus, Target};
use e2e::{Component, Controller, eventually, objects};
use serde_json::json;

use crate::cluster::{Cluster, Corner, DEADLINE};
use crate::devices::{classes, driver, faults, gpus, overlay, pod};

/// Sections of the page, and groups of alerts, about what does not run here.
const ELSEWHERE: [&str; 3] = ["kubelet", "DRA drivers", "dra-nodes"];

/// Machines whose drivers have not published yet.
const AWAITED: &str = r#"operator_status_condition_count{kind="NodeClaim", type="DevicesPublished", status="Unknown"}"#;

/// What the alerts make of this cluster: two things are wrong in it, and nothing hangs.
const STATES: [(&str, &str); 3] = [
    ("DovetailPodsWithoutDevices", "pending"),
    ("DovetailDevicesNotAsDescribed", "pending"),
    ("DovetailLoopHangs", "inactive"),
];

#[tokio::test]
async fn what_is_to_be_watched_is_there_to_be_watched() -> Result<()> {
    if let Err(missing) = tokio::task::spawn_blocking(e2e::prometheus::fetch).await? {
        corpus::note("what is to be watched", &format_args!("skipped: {missing:#}"));
        return Ok(());
    }
    let cluster = Cluster::new("dra-operations").await?;
    let client = cluster.client().await?;
    // On machines of the second NodePool a driver publishes something else than is described, on those of the first one
    // nothing for a while.
    let (well, wrong) = ("operated", "operated-wrong");
    let fault = |name: &str, publishes: &str| json!({ "target": { "nodePool": name }, "driver": driver("gpu", name), "publishes": publishes });
    let at_first = json!([fault(well, "never"), fault(wrong, "wrong")]);
    e2e::apply::apply(&client, [faults(at_first)]).await?;
    let corner = Corner::new(client.clone(), well).await?;
    for of in [&corner, &Corner::new(client.clone(), wrong).await?] {
        of.apply([overlay(&of.name)]).await?;
        of.apply(classes(&of.name)).await?;
        of.apply([pod(&of.name, "served", "one")]).await?;
    }
    let controller = Controller::start_ready(&cluster.controller()?.env("KWOK_READ_FAULTS", "true")).await?;
    let prometheus =
        Prometheus::start(cluster.control_plane.folder(), &targets(&cluster, &controller)?, &monitoring::rules())
            .await?;
    let sections = monitoring::page()?;
    ensure!(sections == monitoring::dashboard()?, "the page and the dashboard ask something else");
    let queries = sections.iter().flat_map(|section| section.queries.clone());
    for query in queries.chain(monitoring::alerts()?.into_iter().map(|alert| alert.expression)) {
        prometheus.series(&query)?;
    }
    eventually("a machine waits for its drivers", DEADLINE, async || {
        ensure!(prometheus.series(AWAITED)? > 0, "none does");
        Ok(())
    })
    .await?;
    e2e::apply::apply(&client, [faults(json!([fault(wrong, "wrong")]))]).await?;
    // Once there is a machine that it could be on, the scheduler says that devices keep it out.
    corner.bound(1).await?;
    corner.apply([gpus(well, "five", 5), pod(well, "greedy", "five")]).await?;
    every_query_returns_data(&prometheus, &corner, &sections).await?;
    alerts_are_evaluated(&prometheus).await?;
    controller.terminate().await.map(drop)
}

/// All that runs here and has metrics.
fn targets(cluster: &Cluster, controller: &Controller) -> Result<Vec<Target>> {
    let plane = &cluster.control_plane;
    let components = [
        (Component::Apiserver, Some(plane.token()?)),
        (Component::ControllerManager, None),
        (Component::Scheduler, None),
    ];
    let mut targets = Vec::new();
    for (component, token) in components {
        let url = plane.metrics_url(component)?.to_owned();
        targets.push(Target { job: component.to_string(), url, token });
    }
    let url = format!("http://127.0.0.1:{}/metrics", controller.metrics_port());
    targets.push(Target { job: "dovetail".to_owned(), url, token: None });
    Ok(targets)
}

fn is_here(name: &str) -> bool {
    !ELSEWHERE.contains(&name)
}

async fn every_query_returns_data(prometheus: &Prometheus, corner: &Corner, sections: &[Section]) -> Result<()> {
    let here = sections.iter().filter(|section| is_here(&section.component));
    let queries: Vec<&String> = here.flat_map(|section| &section.queries).collect();
    let elsewhere = sections.iter().filter(|section| !is_here(&section.component)).count();
    ensure!(!queries.is_empty() && elsewhere > 0, "{sections:?}");
    let number = Cell::new(0);
    eventually("each query of what runs here returns data", DEADLINE, async || {
        let mut silent = Vec::new();
        for query in &queries {
            if prometheus.series(query)? == 0 {
                silent.push(query);
            }
        }
        if !silent.is_empty() {
            // kube-scheduler measures its plugins in one attempt of ten, so there have to be attempts.
            number.set(number.get() + 1);
            let name = format!("plain-{}", number.get());
            corner.apply([objects::pod(&corner.name, &name, &json!({ "cpu": "1m" }))]).await?;
        }
        ensure!(silent.is_empty(), "no data: {silent:#?}");
        Ok(())
    })
    .await
}

async fn alerts_are_evaluated(prometheus: &Prometheus) -> Result<()> {
    let alerts = monitoring::alerts()?;
    eventually("each alert has been evaluated", DEADLINE, async || {
        let rules = prometheus.rules()?;
        // Prometheus has its groups by name.
        let loaded: BTreeSet<_> = rules.iter().map(|rule| &rule.name).collect();
        let written: BTreeSet<_> = alerts.iter().map(|alert| &alert.name).collect();
        ensure!(loaded == written, "loaded {loaded:?}, of {written:?}");
        let ill: Vec<_> = rules.iter().filter(|rule| rule.health != "ok").collect();
        ensure!(ill.is_empty(), "{ill:?}");
        for (name, state) in STATES {
            let is_so = rules.iter().any(|rule| rule.name == name && rule.state == state);
            ensure!(is_so, "{name} is not {state}: {rules:?}");
        }
        Ok(())
    })
    .await?;
    // An alert is silent as long as all is well, and also if nobody has its metric.
    for alert in alerts.iter().filter(|alert| is_here(&alert.group)) {
        let metrics = monitoring::metrics(&alert.expression);
        ensure!(!metrics.is_empty(), "{} looks at nothing", alert.name);
        for metric in metrics {
            ensure!(prometheus.series(metric)? > 0, "{}: nothing has metric {metric}", alert.name);
        }
    }
    Ok(())
}
