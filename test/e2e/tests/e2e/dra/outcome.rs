//! A prediction and an allocation in one form, so that they can be compared.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use model::Quantity;
use serde_json::{Value, json};

use super::scenario::Expected;

/// The claims of a prediction, in the order of the pod's entries.
pub(super) fn predicted(answer: &Value) -> Result<Vec<Value>> {
    ensure!(answer["outcome"] == "Allocated", "not predicted to get devices: {answer}");
    let claims = answer["claims"].as_array().context("a prediction without claims")?;
    claims.iter().map(|claim| normal(list(&claim["devices"]), list(&claim["config"]), &claim["nodeSelector"])).collect()
}

/// `status.allocation` of a claim.
pub(super) fn given(allocation: &Value) -> Result<Value> {
    let devices = &allocation["devices"];
    let results = list(&devices["results"]).iter().map(|result| {
        let mut result = result.clone();
        result["shared"] = json!(!result["shareID"].is_null());
        result
    });
    normal(&results.collect::<Vec<_>>(), list(&devices["config"]), &allocation["nodeSelector"])
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn normal(results: &[Value], config: &[Value], node_selector: &Value) -> Result<Value> {
    let results = results
        .iter()
        .map(|result| {
            Ok(json!({
                "request": result["request"],
                "device": [result["driver"], result["pool"], result["device"]],
                "adminAccess": result["adminAccess"] == true,
                "shared": result["shared"] == true,
                "consumedCapacity": quantities(&result["consumedCapacity"])?,
                "bindingConditions": list(&result["bindingConditions"]),
                "bindingFailureConditions": list(&result["bindingFailureConditions"]),
            }))
        })
        .collect::<Result<Vec<Value>>>()?;
    Ok(json!({ "results": results, "config": config, "nodeSelector": node_selector }))
}

/// Amounts by name, whatever way they are written.
pub(super) fn quantities(amounts: &Value) -> Result<BTreeMap<String, i128>> {
    let read = |(name, amount): (&String, &Value)| {
        let text = amount.as_str().with_context(|| format!("{name} is {amount}"))?;
        let quantity: Quantity = text.parse().with_context(|| format!("{name} is {text:?}"))?;
        Ok((name.clone(), quantity.to_nano()))
    };
    amounts.as_object().into_iter().flatten().map(read).collect()
}

/// What a pod's status says its devices cost of the node, in the words of 1.36 (`resources`) and of 1.37.
pub(super) fn charged(status: &Value) -> Result<BTreeMap<String, i128>> {
    let mut charged = BTreeMap::new();
    for claim in list(&status["nodeAllocatableResourceClaimStatuses"]) {
        let mut add = |amounts: &Value, times: i128| -> Result<()> {
            for (name, amount) in quantities(amounts)? {
                *charged.entry(name).or_insert(0) += amount * times;
            }
            Ok(())
        };
        let named = |entry: &Value, amount: &str| match &entry[amount] {
            Value::Null => Ok(json!({})),
            amount => entry["name"].as_str().context("no name").map(|name| json!({ name: amount })),
        };
        add(&claim["resources"], 1)?;
        for mapping in list(&claim["mapping"]) {
            add(&named(mapping, "quantity")?, 1)?;
        }
        let containers = i128::try_from(list(&claim["containers"]).len())?;
        for overhead in list(&claim["overhead"]) {
            add(&named(overhead, "perPod")?, 1)?;
            add(&named(overhead, "perContainer")?, containers)?;
        }
    }
    Ok(charged)
}

/// Whether the claims are what the scenario is to show.
pub(super) fn is_as_the_scenario_says(expected: &Expected, claims: &[Value]) -> Result<()> {
    let results = claims.iter().flat_map(|claim| list(&claim["results"]));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let devices: Vec<String> =
        results.map(|result| format!("{} {}", text(&result["request"]), text(&result["device"][2]))).collect();
    if devices != expected.devices {
        bail!("pod {} is to show {:?}, and is predicted {devices:?}", expected.name, expected.devices);
    }
    Ok(())
}
