//! From launch to the end of a machine.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use api::{NodeSelectorRequirementWithMinValues, Operator, labels};
use futures::future::join_all;
use model::{PriceNanoUsdPerHour, ProviderId, Uid};

use super::{Claim, Finding, Kit, MAX_POLLS, ensure};
use crate::{
    CapacityType, CreateRequest, Error, Instance, InstanceType, InstanceTypes, LabelRequirements, OfferingKey,
    instance_type, launch,
};

/// How many calls run at once where that matters.
const AT_ONCE: usize = 4;

/// At how many of its first steps a launch is cut off.
const MAX_CUTS: u32 = 12;

fn one_of(key: &str, values: impl IntoIterator<Item = String>) -> NodeSelectorRequirementWithMinValues {
    let values = values.into_iter().collect();
    NodeSelectorRequirementWithMinValues { key: key.to_owned(), operator: Operator::In, values, min_values: None }
}

/// Requirements that only this offering's zone, type and terms meet.
fn exactly(offering: &OfferingKey) -> Vec<NodeSelectorRequirementWithMinValues> {
    vec![
        one_of(labels::INSTANCE_TYPE, [offering.instance_type.to_string()]),
        one_of(labels::ZONE, [offering.zone.clone()]),
        one_of(labels::CAPACITY_TYPE, [offering.capacity_type.to_string()]),
    ]
}

/// A claim for the cheapest machine, nothing left open.
async fn cheapest_claim(kit: &Kit<'_>, types: &InstanceTypes) -> Result<Claim, Finding> {
    kit.new_claim(exactly(&kit.cheapest(types)?)).await
}

pub(super) async fn create_meets_what_is_asked(kit: &Kit<'_>, types: &InstanceTypes) -> Result<(), Finding> {
    // As an autoscaler asks: several types, and zones narrowed to all but the first.
    let any = LabelRequirements::default();
    let options = launch::launch_options(&types.types, &any, &Default::default(), |_| false);
    let Some(cheapest) = options.first() else {
        return Err(Finding::NotPossible("nothing in the catalogue can be launched".to_owned()));
    };
    let names = options.iter().map(|option| option.instance_type.name.to_string());
    let dearest = options.last().map(|option| option.offering.zone.clone());
    let claim = kit
        .new_claim(vec![
            one_of(labels::INSTANCE_TYPE, names),
            one_of(labels::ZONE, dearest),
            NodeSelectorRequirementWithMinValues {
                key: labels::ARCH.to_owned(),
                operator: Operator::Exists,
                values: Vec::new(),
                min_values: None,
            },
        ])
        .await?;
    let instance = kit.provider.create(claim.request()).await?;
    check_instance(kit, types, &claim, &instance)?;

    let claim = kit.new_claim(exactly(&cheapest.key())).await?;
    let instance = kit.provider.create(claim.request()).await?;
    check_instance(kit, types, &claim, &instance)
}

/// Whether an instance is one that the catalogue has and the claim allows.
fn check_instance(kit: &Kit<'_>, types: &InstanceTypes, claim: &Claim, instance: &Instance) -> Result<(), Finding> {
    let id = &instance.provider_id;
    ensure!(!id.is_empty(), "the provider id is empty");
    ensure!(instance.token.as_ref() == Some(&claim.token), "{id}: token {:?} is not the claim's", instance.token);
    let Some(instance_type) = types.types.iter().find(|it| it.name == instance.instance_type) else {
        return Err(format!("{id}: type {} is not in the catalogue", instance.instance_type).into());
    };
    let expected = [
        (labels::INSTANCE_TYPE, instance.instance_type.as_str()),
        (labels::ZONE, instance.zone.as_str()),
        (labels::CAPACITY_TYPE, instance.capacity_type.as_str()),
    ];
    for (key, value) in expected {
        let label = instance.labels.get(key);
        ensure!(label.is_some_and(|label| label == value), "{id}: label {key} is {label:?}, not {value:?}");
    }
    let requirements =
        LabelRequirements::of_claim(&claim.claim, &kit.provider.config().labels).map_err(|error| error.to_string())?;
    for (key, value) in &instance.labels {
        ensure!(
            requirements.allow_value(key, Some(value)),
            "{id}: label {key}={value} breaks the claim's requirements"
        );
    }
    for (key, values) in &instance_type.requirements {
        let label = instance.labels.get(key);
        let fits = match label {
            Some(label) => values.contains(label),
            None => values.is_empty(),
        };
        ensure!(fits, "{id}: label {key} is {label:?}, its type has {values:?}");
    }
    let offered = instance_type.offerings.iter().any(|offering| {
        offering.launchable()
            && offering.all_labels().all(|(key, value)| instance.labels.get(key).is_some_and(|label| label == value))
    });
    ensure!(offered, "{id}: no launchable offering has its labels");
    let requests =
        instance_type::resources_from_api(&claim.claim.spec.resources.requests).map_err(|error| error.to_string())?;
    ensure!(launch::fits(&requests, &instance.allocatable), "{id}: the requests do not fit its allocatable");
    ensure!(launch::fits(&instance.allocatable, &instance.capacity), "{id}: allocatable exceeds capacity");
    Ok(())
}

/// On demand only: who sells spare machines may weigh more than the price.
pub(super) async fn corrected_prices_decide(kit: &Kit<'_>, types: &InstanceTypes) -> Result<(), Finding> {
    let on_demand = vec![one_of(labels::CAPACITY_TYPE, [CapacityType::OnDemand.to_string()])];
    let probe = kit.new_claim(on_demand.clone()).await?;
    let requirements =
        LabelRequirements::of_claim(&probe.claim, &kit.provider.config().labels).map_err(|error| error.to_string())?;
    let options = launch::launch_options(&types.types, &requirements, &Default::default(), |_| false);
    let (Some(cheapest), Some(dearest)) = (options.first(), options.last()) else {
        return Err(Finding::NotPossible("nothing can be launched on demand".to_owned()));
    };
    if cheapest.instance_type.name == dearest.instance_type.name {
        return Err(Finding::NotPossible("only one instance type can be launched on demand".to_owned()));
    }
    let wanted = dearest.key();
    let names = [&cheapest.instance_type.name, &dearest.instance_type.name].map(ToString::to_string);
    let corrected: Vec<Arc<InstanceType>> = types
        .types
        .iter()
        .map(|instance_type| {
            let mut instance_type = InstanceType::clone(instance_type);
            for offering in &mut instance_type.offerings {
                let is_wanted = offering.key(&instance_type.name) == wanted;
                offering.price = if is_wanted { PriceNanoUsdPerHour(1) } else { PriceNanoUsdPerHour(i64::MAX / 4) };
            }
            Arc::new(instance_type)
        })
        .collect();
    let mut requirements = on_demand;
    requirements.push(one_of(labels::INSTANCE_TYPE, names));
    requirements.push(one_of(labels::ZONE, [cheapest.key().zone, wanted.zone.clone()]));
    let claim = kit.new_claim(requirements).await?;
    let request = CreateRequest { instance_types: Some(&corrected), ..claim.request() };
    let instance = kit.provider.create(request).await?;
    ensure!(
        (&instance.instance_type, &instance.zone) == (&wanted.instance_type, &wanted.zone),
        "launched {} in {}, but {wanted} is the cheapest by the corrected prices",
        instance.instance_type,
        instance.zone,
    );
    Ok(())
}

pub(super) async fn create_again_gives_the_same(kit: &Kit<'_>, types: &InstanceTypes) -> Result<(), Finding> {
    let claim = cheapest_claim(kit, types).await?;
    let first = kit.provider.create(claim.request()).await?;
    let second = kit.provider.create(claim.request()).await?;
    ensure!(first.provider_id == second.provider_id, "{} and then {}", first.provider_id, second.provider_id);
    ensure!(first.labels == second.labels, "{}: labels changed between two calls", first.provider_id);
    kit.listed(&claim.token).await?;
    Ok(())
}

pub(super) async fn create_at_once_launches_one(kit: &Kit<'_>, types: &InstanceTypes) -> Result<(), Finding> {
    let claim = cheapest_claim(kit, types).await?;
    let mut ids = Vec::new();
    for result in join_all((0..AT_ONCE).map(|_| kit.provider.create(claim.request()))).await {
        match result {
            Ok(instance) => ids.push(instance.provider_id),
            // Losing the race may be an error that is tried again, but no other.
            Err(Error::Transient(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    ids.push(kit.provider.create(claim.request()).await?.provider_id);
    ids.sort();
    ids.dedup();
    ensure!(ids.len() == 1, "{} instances for one token: {ids:?}", ids.len());
    kit.listed(&claim.token).await?;
    Ok(())
}

/// Polls a future a number of times and then gives up on it, as a time-out or a crash does.
struct CutOff<F> {
    future: F,
    polls_left: u32,
}

impl<F: Future + Unpin> Future for CutOff<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls_left == 0 {
            return Poll::Ready(None);
        }
        self.polls_left -= 1;
        match Pin::new(&mut self.future).poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.polls_left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

pub(super) async fn create_after_a_lost_answer(kit: &Kit<'_>, types: &InstanceTypes) -> Result<(), Finding> {
    for polls_left in 1..=MAX_CUTS {
        let claim = cheapest_claim(kit, types).await?;
        let cut_off = CutOff { future: kit.provider.create(claim.request()), polls_left }.await;
        let answered = match cut_off {
            Some(result) => Some(result?),
            None => None,
        };
        let instance = kit.provider.create(claim.request()).await?;
        let listed = kit.listed(&claim.token).await?;
        ensure!(
            listed.provider_id == instance.provider_id,
            "cut off after {polls_left} steps, then {}, but {} is listed",
            instance.provider_id,
            listed.provider_id
        );
        if let Some(answered) = answered {
            ensure!(answered.provider_id == instance.provider_id, "the second call answered differently");
            return Ok(());
        }
    }
    Ok(())
}

pub(super) async fn every_claim_gets_its_own(kit: &Kit<'_>, types: &InstanceTypes) -> Result<(), Finding> {
    let mut claims = Vec::new();
    for _ in 0..AT_ONCE {
        claims.push(cheapest_claim(kit, types).await?);
    }
    let mut ids = Vec::new();
    for result in join_all(claims.iter().map(|claim| kit.provider.create(claim.request()))).await {
        ids.push(result?.provider_id);
    }
    ids.sort();
    ids.dedup();
    ensure!(ids.len() == AT_ONCE, "{AT_ONCE} claims got {} instances", ids.len());
    Ok(())
}

pub(super) async fn get_list_and_find_agree(kit: &Kit<'_>, types: &InstanceTypes) -> Result<(), Finding> {
    let claim = cheapest_claim(kit, types).await?;
    let created = kit.provider.create(claim.request()).await?;
    let listed = kit.listed(&claim.token).await?;
    let got = kit.provider.get(&created.provider_id).await?;
    let found = kit.provider.find(&claim.token).await?;
    for (how, instance) in [("list", &listed), ("get", &got), ("find", &found)] {
        let same = |instance: &Instance| {
            (
                instance.provider_id.clone(),
                instance.token.clone(),
                instance.instance_type.clone(),
                instance.zone.clone(),
                instance.capacity_type,
                instance.capacity.clone(),
                instance.allocatable.clone(),
                instance.created_at,
            )
        };
        ensure!(same(instance) == same(&created), "create gave {created:?}, {how} gave {instance:?}");
    }
    let name = claim.claim.metadata.name.as_deref();
    ensure!(listed.claim_name.as_deref() == name, "the list names claim {:?}, not {name:?}", listed.claim_name);
    let ids: Vec<_> = kit.provider.list().await?.into_iter().map(|instance| instance.provider_id).collect();
    ensure!(ids.is_sorted(), "the list is not ordered by provider id");
    Ok(())
}

pub(super) async fn delete_ends_in_not_found(kit: &Kit<'_>, types: &InstanceTypes) -> Result<(), Finding> {
    let claim = cheapest_claim(kit, types).await?;
    let instance = kit.provider.create(claim.request()).await?;
    kit.listed(&claim.token).await?;
    kit.provider.delete(&instance.provider_id).await?;
    kit.delete_until_gone(&instance).await?;
    for _ in 0..AT_ONCE {
        let again = kit.provider.delete(&instance.provider_id).await;
        ensure!(is_not_found(&again), "deleting what is gone gave {again:?}");
    }
    let got = kit.provider.get(&instance.provider_id).await;
    ensure!(is_not_found(&got), "get of what is gone gave {got:?}");
    for _ in 0..MAX_POLLS {
        if kit.instances_of(&claim.token).await?.is_empty() {
            return Ok(());
        }
        kit.hooks.pause().await;
    }
    Err("the list never stopped showing an instance that is gone".to_owned().into())
}

fn is_not_found<T>(result: &Result<T, Error>) -> bool {
    result.as_ref().is_err_and(Error::is_not_found)
}

pub(super) async fn what_does_not_exist_is_not_found(kit: &Kit<'_>, types: &InstanceTypes) -> Result<(), Finding> {
    // An id of the right form that nothing has: that of a machine which is gone.
    let claim = cheapest_claim(kit, types).await?;
    let gone = kit.provider.create(claim.request()).await?;
    kit.delete_until_gone(&gone).await?;
    for id in [gone.provider_id, ProviderId::from("conformance://no-provider-has-this")] {
        let got = kit.provider.get(&id).await;
        ensure!(is_not_found(&got), "get of {id} gave {got:?}");
        let deleted = kit.provider.delete(&id).await;
        ensure!(is_not_found(&deleted), "delete of {id} gave {deleted:?}");
    }
    let found = kit.provider.find(&Uid::from("conformance-no-claim-has-this")).await;
    ensure!(is_not_found(&found), "find of an unknown token gave {found:?}");
    Ok(())
}

pub(super) async fn nothing_compatible(kit: &Kit<'_>, types: &InstanceTypes) -> Result<(), Finding> {
    let mut requirements = exactly(&kit.cheapest(types)?);
    requirements.push(one_of(labels::ZONE, ["conformance-no-such-zone".to_owned()]));
    let claim = kit.new_claim(requirements).await?;
    let result = kit.provider.create(claim.request()).await;
    let refused = matches!(&result, Err(Error::InsufficientCapacity { .. }));
    ensure!(refused, "a claim that no offering meets gave {result:?}");
    ensure!(kit.instances_of(&claim.token).await?.is_empty(), "a refused launch left an instance");
    Ok(())
}

pub(super) async fn an_empty_offering_is_named(kit: &Kit<'_>, types: &InstanceTypes) -> Result<(), Finding> {
    let offering = kit.cheapest(types)?;
    without_capacity(kit, &offering, async {
        let claim = kit.new_claim(exactly(&offering)).await?;
        let result = kit.provider.create(claim.request()).await;
        let Err(Error::InsufficientCapacity { offerings, .. }) = &result else {
            return Err(format!("a launch from {offering}, which has no machines, gave {result:?}").into());
        };
        ensure!(
            offerings.contains(&offering),
            "offering {offering} has no machines, but the error names {offerings:?}"
        );
        ensure!(kit.instances_of(&claim.token).await?.is_empty(), "a refused launch left an instance");
        Ok(())
    })
    .await
}

pub(super) async fn an_empty_offering_is_passed_over(kit: &Kit<'_>, types: &InstanceTypes) -> Result<(), Finding> {
    let offering = kit.cheapest(types)?;
    let any = LabelRequirements::default();
    let other = launch::launch_options(&types.types, &any, &Default::default(), |key| key.zone == offering.zone)
        .first()
        .map(launch::LaunchOption::key);
    let Some(other) = other else {
        return Err(Finding::NotPossible("everything is sold in one zone".to_owned()));
    };
    without_capacity(kit, &offering, async {
        let both = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
        let claim = kit
            .new_claim(vec![
                one_of(labels::INSTANCE_TYPE, both(&offering.instance_type, &other.instance_type)),
                one_of(labels::ZONE, both(&offering.zone, &other.zone)),
            ])
            .await?;
        // The first try may have to find out.
        for _ in 0..AT_ONCE {
            match kit.provider.create(claim.request()).await {
                Ok(instance) => {
                    let used = (&instance.instance_type, &instance.zone, instance.capacity_type);
                    let empty = (&offering.instance_type, &offering.zone, offering.capacity_type);
                    ensure!(used != empty, "launched from {offering}, which has no machines");
                    return Ok(());
                }
                Err(Error::InsufficientCapacity { .. }) => kit.hooks.pause().await,
                Err(error) => return Err(error.into()),
            }
        }
        Err(format!("nothing was launched although only {offering} has no machines").into())
    })
    .await
}

/// Runs a check while an offering has no machines.
async fn without_capacity(
    kit: &Kit<'_>,
    offering: &OfferingKey,
    check: impl Future<Output = Result<(), Finding>>,
) -> Result<(), Finding> {
    if !kit.hooks.set_has_capacity(offering, false).await {
        return Err(Finding::NotPossible("capacity cannot be taken away here".to_owned()));
    }
    let result = check.await;
    kit.hooks.set_has_capacity(offering, true).await;
    result
}

pub(super) async fn a_fresh_instance_has_not_drifted(kit: &Kit<'_>, types: &InstanceTypes) -> Result<(), Finding> {
    let mut claim = cheapest_claim(kit, types).await?;
    let instance = kit.provider.create(claim.request()).await?;
    launched(&mut claim, &instance);
    let drifted = kit.provider.drifted(&claim.claim).await?;
    ensure!(drifted.is_none(), "a fresh instance has drifted: {drifted:?}");
    Ok(())
}

pub(super) async fn reboot_is_idempotent(kit: &Kit<'_>, types: &InstanceTypes) -> Result<(), Finding> {
    let mut claim = cheapest_claim(kit, types).await?;
    let instance = kit.provider.create(claim.request()).await?;
    launched(&mut claim, &instance);
    kit.hooks.register(&mut claim.claim).await;
    for _ in 0..2 {
        match kit.provider.reboot(&claim.claim, "conformance-operation").await {
            Ok(()) => {}
            Err(Error::RebootNotImplemented(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Writes into the claim what the autoscaler writes after a launch.
fn launched(claim: &mut Claim, instance: &Instance) {
    claim.claim.metadata.labels.get_or_insert_default().extend(instance.labels.clone());
    claim.claim.status.get_or_insert_default().provider_id = instance.provider_id.to_string();
}
