//! What is done from time to time, and not in a hurry: tags of machines, launches that are finished, launch templates
//! that nobody uses.
//!
//! A launch is finished when its machine has the tag that names its NodeClaim, and the NodeClaim names the machine or
//! is gone. From then on the machine itself says whose it is.

use std::collections::{BTreeMap, BTreeSet};

use api::NodeClaim;
use cloudprovider::Error;
use model::Uid;

use super::instances::query;
use super::launcher::NotLaunched;
use super::lookup::SHOWN_WITHIN;
use super::{Ec2CloudProvider, Owner, transient};
use crate::launch::batch::Batch;
use crate::names;
use crate::node_class::spec::Tags;
use crate::node_class::tags::{CLUSTER_NAME, NAME, NODE_CLAIM};
use crate::provider_id::MachineId;
use crate::service::Kind;
use crate::service::ec2::Machine;

/// NodeClaims, by what leads to them.
struct Claims {
    by_uid: BTreeMap<Uid, NodeClaim>,
    /// The ids of the machines that they name.
    named: BTreeSet<String>,
}

impl Claims {
    fn new(all: Vec<NodeClaim>) -> Self {
        let named = all.iter().filter_map(machine_of).map(|id| id.instance).collect();
        let by_uid = all.into_iter().filter_map(|claim| Some((claim.metadata.uid.as_deref()?.into(), claim)));
        Self { by_uid: by_uid.collect(), named }
    }
}

/// The machine that a NodeClaim names.
fn machine_of(claim: &NodeClaim) -> Option<MachineId> {
    MachineId::parse(&claim.status.as_ref()?.provider_id.as_str().into())
}

impl Ec2CloudProvider {
    /// Does what is due.
    ///
    /// # Errors
    /// The first that fails. Everything else is done all the same, and what is left the next time.
    pub async fn tidy(&self) -> Result<(), Error> {
        let inner = &*self.inner;
        inner.market.restore().await.map_err(transient)?;
        // Claims after the journal: a claim that the journal has was there before.
        let launched = self.launched().await?;
        let machines = self.described(&query(&inner.cluster.name, None)).await?;
        let machines: BTreeMap<_, _> = machines.into_iter().map(|machine| (machine.id.clone(), machine)).collect();
        let claims = Claims::new(inner.objects.node_claims().await.map_err(transient)?);
        let done = [
            self.give_up_late(&machines, &claims).await,
            self.finish(&launched, &machines, &claims).await,
            self.tag_registered(&machines, &claims).await,
            self.tidy_templates().await,
            inner.launcher.journal().sweep().await.map_err(transient),
            inner.market.save().await.map_err(transient),
            self.learn(claims.by_uid.iter()).await,
        ];
        done.into_iter().collect()
    }

    /// Removes launch templates that nobody uses and no open launch needs.
    async fn tidy_templates(&self) -> Result<(), Error> {
        let open = self.inner.launcher.journal().all().await.map_err(transient)?;
        let needed = open.iter().flat_map(|open| open.batch.templates.keys().cloned()).collect();
        self.inner.templates.tidy(&needed, self.now()).await.map_err(|error| self.failed(error))
    }

    /// Tags machines of open launches, and closes the launches that are finished.
    async fn finish(
        &self,
        launched: &BTreeMap<String, (Machine, Owner)>,
        machines: &BTreeMap<String, Machine>,
        claims: &Claims,
    ) -> Result<(), Error> {
        let now = self.now();
        let mut done = BTreeSet::new();
        let mut failed = None;
        for (id, (of_launch, owner)) in launched {
            let Some(token) = &owner.token else { continue };
            let claim = claims.by_uid.get(token);
            let is_told = claim.is_none_or(|claim| machine_of(claim).is_some_and(|named| named.instance == *id));
            match machines.get(id) {
                Some(machine) if Owner::of_tags(machine).token.as_ref() == Some(token) => {
                    done.extend(is_told.then(|| token.clone()));
                }
                Some(_) => {
                    let name = owner.claim.as_ref().map(ToString::to_string).unwrap_or_default();
                    let tags = [(names::NODE_CLAIM_UID, token.as_str()), (NODE_CLAIM, &name)];
                    match self.tag(id, &tags).await {
                        Ok(()) => {}
                        // As with the policy that Karpenter's users have: the NodeClaim alone says whose it is then.
                        Err(error) if error.kind == Kind::Unauthorized && is_told => {
                            tracing::warn!(%error, machine = %id, "could not tag a machine with its nodeclaim");
                            self.inner.telemetry.metrics.call_failed(&error);
                            done.insert(token.clone());
                        }
                        // Each machine is on its own; the rest is done in any case.
                        Err(error) => failed = Some(self.failed(error)),
                    }
                }
                // EC2 does not list it yet, or not any more.
                None if now.since(of_launch.launched_at) > SHOWN_WITHIN && is_told => drop(done.insert(token.clone())),
                None => {}
            }
        }
        self.inner.launcher.journal().close(&done).await.map_err(transient)?;
        failed.map_or(Ok(()), Err)
    }

    /// Gives up launches that nobody can find out about any more: the controller was away for longer than EC2 knows the
    /// token. What NodeClaims name of their machines stays, the rest ends.
    async fn give_up_late(&self, machines: &BTreeMap<String, Machine>, claims: &Claims) -> Result<(), Error> {
        let launcher = &self.inner.launcher;
        for open in launcher.journal().all().await.map_err(transient)? {
            if !matches!(launcher.settle(&open).await, Err(NotLaunched::TooLate)) {
                continue;
            }
            let nobodys = nobodys(&open.batch, machines, claims);
            if !nobodys.is_empty() {
                tracing::warn!(machines = ?nobodys, "ending machines launched before the controller was away");
                self.inner.ec2.terminate_instances(&nobodys).await.map_err(|error| self.failed(error))?;
            }
            let all = open.batch.claims.iter().map(|claim| claim.uid.clone()).collect();
            launcher.journal().close(&all).await.map_err(transient)?;
        }
        Ok(())
    }

    /// Gives machines of registered Nodes the tags that are known only then; each is on its own.
    async fn tag_registered(&self, machines: &BTreeMap<String, Machine>, claims: &Claims) -> Result<(), Error> {
        let mut done = Ok(());
        for claim in claims.by_uid.values() {
            let machine = machine_of(claim).and_then(|id| machines.get(&id.instance));
            if let Some(machine) = machine {
                done = done.and(self.tag_as_registered(machine, claim).await);
            }
        }
        done
    }

    async fn tag_as_registered(&self, machine: &Machine, claim: &NodeClaim) -> Result<(), Error> {
        let node = claim.status.as_ref().map_or("", |status| status.node_name.as_str());
        let has = |key: &str| claim.metadata.annotations.as_ref().is_some_and(|it| it.contains_key(key));
        if node.is_empty() || has(names::TAGGED) && has(names::CLUSTER_NAME_TAGGED) {
            return Ok(());
        }
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let wanted = [(NAME, node), (NODE_CLAIM, name), (CLUSTER_NAME, &*self.inner.cluster.name)];
        // What is there stays: it may be another one's on purpose.
        let missing: Vec<_> = wanted.into_iter().filter(|(key, _)| !machine.tags.contains_key(*key)).collect();
        if !missing.is_empty() {
            self.tag(&machine.id, &missing).await.map_err(|error| self.failed(error))?;
        }
        let yes = || api::labels::TRUE.to_owned();
        let annotations = [(names::TAGGED, yes()), (names::CLUSTER_NAME_TAGGED, yes())];
        self.inner.objects.annotate(claim, &annotations).await.map_err(transient)
    }

    /// Tags a machine. One that is gone needs none.
    async fn tag(&self, id: &str, tags: &[(&str, &str)]) -> Result<(), crate::service::Error> {
        let tags: Tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        match self.inner.ec2.create_tags(&[id.to_owned()], &tags).await {
            Err(error) if error.kind != Kind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// The machines of a batch that no NodeClaim names and no tag gives to one.
fn nobodys(batch: &Batch, machines: &BTreeMap<String, Machine>, claims: &Claims) -> Vec<String> {
    let of_batch = |machine: &&Machine| machine.tags.get(names::LAUNCH_TOKEN) == Some(&batch.token);
    let is_nobodys = |machine: &&Machine| {
        let of_tags = Owner::of_tags(machine).token;
        !claims.named.contains(&machine.id) && of_tags.is_none_or(|uid| !claims.by_uid.contains_key(&uid))
    };
    machines.values().filter(of_batch).filter(is_nobodys).map(|machine| machine.id.clone()).collect()
}
