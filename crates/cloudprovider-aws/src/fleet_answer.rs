//! What an answer to a request for a fleet means for each claim of the batch, and for what is asked next.
//!
//! An answer may have machines and errors at once: machines go to claims, and errors are evidence of what cannot be had
//! now, whoever was served.

use std::collections::{BTreeMap, BTreeSet};

use cloudprovider::OfferingKey;

use crate::launch::batch::{Batch, Claim};
use crate::launch::template::{Market, TemplateKey};
use crate::service::FleetFault;
use crate::service::ec2::{FleetAnswer, FleetError, FleetMachines};
use crate::service::error::launch_failure_reason;

/// What became of one claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A machine was launched for it.
    Launched(Launched),
    /// None, and another offering may help.
    NoCapacity {
        /// Why, in EC2's words.
        message: String,
    },
    /// None, and it is worth asking for the same again.
    Failed {
        /// The reason of condition `Launched`.
        reason: &'static str,
        /// Why, in EC2's words.
        message: String,
    },
}

/// A machine that was launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launched {
    /// Its id.
    pub id: String,
    /// Its type.
    pub instance_type: String,
    /// Its zone's name.
    pub zone: String,
    /// Its subnet.
    pub subnet_id: Option<String>,
    /// Its image.
    pub image_id: Option<String>,
}

/// What an answer says cannot be had.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Offerings without machines.
    pub offerings: BTreeSet<OfferingKey>,
    /// Subnets without addresses.
    pub subnets: BTreeSet<String>,
    /// Reservations that are used up.
    pub full_reservations: BTreeSet<String>,
    /// Whether nothing of spot can be had.
    pub spot_role_is_missing: bool,
}

/// What became of each claim, in the order of the batch.
pub fn outcomes(batch: &Batch, answer: &FleetAnswer) -> Vec<(Claim, Outcome)> {
    let ids: Vec<_> = answer.machines.iter().flat_map(|machines| machines.ids.iter().cloned()).collect();
    let refused = refused(&answer.errors);
    let outcome = |(claim, machine): (&Claim, Option<&str>)| {
        let launched = machine.and_then(|id| launched(&answer.machines, id));
        (claim.clone(), launched.map_or_else(|| refused.clone(), Outcome::Launched))
    };
    batch.deal(&ids).map(outcome).collect()
}

fn launched(machines: &[FleetMachines], id: &str) -> Option<Launched> {
    let kind = machines.iter().find(|machines| machines.ids.iter().any(|other| other == id))?;
    Some(Launched {
        id: id.to_owned(),
        instance_type: kind.instance_type.clone(),
        zone: kind.zone.clone(),
        subnet_id: kind.subnet_id.clone(),
        image_id: kind.image_id.clone(),
    })
}

/// What claims are told for whom there is no machine.
fn refused(errors: &[FleetError]) -> Outcome {
    let messages: BTreeSet<_> = errors.iter().map(|error| format!("{}: {}", error.code, error.message)).collect();
    let message = messages.into_iter().collect::<Vec<_>>().join("; ");
    let other = errors.iter().find(|error| !FleetFault::of(&error.code).is_lack_of_capacity());
    match (other, errors) {
        (_, []) => Outcome::Failed {
            reason: "LaunchFailed",
            message: "EC2 answered with fewer machines than were asked for, and no error".to_owned(),
        },
        (Some(error), _) => Outcome::Failed { reason: launch_failure_reason(&error.code, &error.message), message },
        (None, _) => Outcome::NoCapacity { message },
    }
}

/// What the errors of an answer say cannot be had, where these launch templates were asked for. An error that names
/// no type, no zone or no launch template says nothing of an offering.
pub fn evidence(errors: &[FleetError], templates: &BTreeMap<String, TemplateKey>) -> Evidence {
    let mut evidence = Evidence::default();
    for error in errors {
        let named = error.launch_template.as_ref().and_then(|name| templates.get(name));
        // Where there is no choice, the error need not say.
        let key = named.or_else(|| templates.values().next().filter(|_| templates.len() == 1));
        let Some(TemplateKey { market, .. }) = key else { continue };
        match FleetFault::of(&error.code) {
            FleetFault::NoCapacity | FleetFault::Quota => evidence.offerings.extend(offering(error, market)),
            FleetFault::NoAddresses => evidence.subnets.extend(error.subnet_id.clone()),
            FleetFault::ReservationFull | FleetFault::ReservationUnavailable => {
                evidence.full_reservations.extend(market.reservation().map(str::to_owned));
            }
            FleetFault::SpotRoleMissing => evidence.spot_role_is_missing = true,
            FleetFault::Other => {}
        }
    }
    evidence
}

fn offering(error: &FleetError, market: &Market) -> Option<OfferingKey> {
    Some(OfferingKey {
        instance_type: error.instance_type.as_deref()?.into(),
        zone: error.zone.clone()?,
        capacity_type: market.capacity_type(),
        reservation_id: market.reservation().map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use model::Timestamp;

    use super::*;
    use crate::launch::batch::{Claim, Occasion, Wanted, batches};
    use crate::launch::fleet::{Choice, FleetRequest, Purchase};

    fn batch(claims: &[&str]) -> Batch {
        let request = FleetRequest {
            configs: Vec::new(),
            purchase: Purchase::OnDemand(Choice::ByPrice),
            tags: Default::default(),
            context: None,
        };
        let wanted = |claim: &&str| Wanted {
            claim: Claim { uid: (*claim).into(), name: (*claim).into() },
            request: request.clone(),
            templates: BTreeMap::new(),
        };
        let occasion = Occasion { now: Timestamp(0), number: 0 };
        batches(claims.iter().map(wanted).collect(), occasion).remove(0)
    }

    fn error(code: &str, instance_type: &str) -> FleetError {
        FleetError {
            code: code.to_owned(),
            message: "no".to_owned(),
            instance_type: Some(instance_type.to_owned()),
            zone: Some("a".to_owned()),
            subnet_id: Some("subnet-a".to_owned()),
            launch_template: None,
        }
    }

    fn template(market: Market) -> BTreeMap<String, TemplateKey> {
        let key = TemplateKey {
            image_id: "ami-1".to_owned(),
            max_pods: 29,
            efa_count: 0,
            market,
            reserved: Default::default(),
        };
        [("t".to_owned(), key)].into()
    }

    fn machines(instance_type: &str, ids: &[&str]) -> FleetMachines {
        FleetMachines {
            ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            instance_type: instance_type.to_owned(),
            zone: "a".to_owned(),
            ..FleetMachines::default()
        }
    }

    fn told(claims: &[&str], answer: &FleetAnswer) -> Vec<String> {
        let text = |outcome: Outcome| match outcome {
            Outcome::Launched(machine) => format!("{} {}", machine.id, machine.instance_type),
            Outcome::NoCapacity { message } => format!("no capacity: {message}"),
            Outcome::Failed { reason, message } => format!("{reason}: {message}"),
        };
        outcomes(&batch(claims), answer)
            .into_iter()
            .map(|(claim, outcome)| format!("{} {}", claim.uid, text(outcome)))
            .collect()
    }

    #[test]
    fn machines_go_to_claims_in_order_and_errors_to_those_that_are_left() {
        let answer = FleetAnswer {
            fleet_id: None,
            machines: vec![machines("m5.large", &["i-3"]), machines("m5.xlarge", &["i-1"])],
            errors: vec![
                error("InsufficientInstanceCapacity", "m5.large"),
                error("InsufficientInstanceCapacity", "c5.large"),
            ],
        };
        assert_eq!(
            told(&["a", "b", "c"], &answer),
            ["a i-1 m5.xlarge", "b i-3 m5.large", "c no capacity: InsufficientInstanceCapacity: no"]
        );
    }

    #[test]
    fn one_error_that_is_no_lack_of_capacity_makes_a_failure() {
        let errors =
            vec![error("InsufficientInstanceCapacity", "m5.large"), error("InvalidAMIID.NotFound", "m5.large")];
        assert_eq!(
            told(&["a"], &FleetAnswer { errors, ..FleetAnswer::default() }),
            ["a AMINotFound: InsufficientInstanceCapacity: no; InvalidAMIID.NotFound: no"]
        );
    }

    #[test]
    fn an_answer_with_neither_machines_nor_errors_is_a_failure() {
        let expected = "a LaunchFailed: EC2 answered with fewer machines than were asked for, and no error";
        assert_eq!(told(&["a"], &FleetAnswer::default()), [expected]);
    }

    #[test]
    fn errors_are_evidence_of_what_they_name() {
        let errors = [
            error("InsufficientInstanceCapacity", "m5.large"),
            error("InsufficientFreeAddressesInSubnet", "m5.large"),
            error("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "m5.large"),
            error("InvalidAMIID.NotFound", "c5.large"),
            FleetError { zone: None, ..error("VcpuLimitExceeded", "m5.large") },
        ];
        let found = evidence(&errors, &template(Market::Spot));
        assert_eq!(found.offerings.iter().map(ToString::to_string).collect::<Vec<_>>(), ["m5.large/a/spot"]);
        assert_eq!(found.subnets, ["subnet-a".to_owned()].into());
        assert!(found.spot_role_is_missing && found.full_reservations.is_empty());
        let reserved = template(Market::Reservation("cr-1".to_owned()));
        let full = evidence(&[error("ReservationCapacityExceeded", "p5.48xlarge")], &reserved);
        assert_eq!(full, Evidence { full_reservations: ["cr-1".to_owned()].into(), ..Evidence::default() });
    }
}
