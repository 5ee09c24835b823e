//! The cloud for a process of its own: a line of JSON asks, a line answers, one connection a call.
//!
//! A test kills the controller and starts another one; the machines must outlive both. So the test has the cloud, and
//! the controller reaches it here. Nothing of this is in a build that can reach AWS.

mod remote;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;

use model::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::Cloud;
use super::content::Content;
use crate::launch::fleet::FleetRequest;
use crate::node_class::spec::Tags;
use crate::service::ec2::Query;
use crate::service::{
    Ec2 as _, Eks as _, Error, Iam as _, PriceList, Pricing as _, Sqs as _, Ssm as _, Sts as _, ZonalShifts as _,
};

pub use self::remote::Remote;

/// Environment variable: where the cloud is, as `address:port`.
pub const VARIABLE: &str = "DOVETAIL_EC2_IN_MEMORY";

/// Where the cloud is, if this process has been told.
pub(crate) fn address() -> Option<String> {
    std::env::var(VARIABLE).ok().filter(|address| !address.is_empty())
}

/// What is asked: the call's name, which tests hold answers by, and its arguments.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    call: String,
    request: Request,
}

/// A failure as it travels. What it means follows from the code.
#[derive(Debug, Serialize, Deserialize)]
struct Fault {
    code: Option<String>,
    message: String,
}

type Answer = Result<Value, Fault>;

/// The calls.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    Subnets(Query),
    SecurityGroups(Query),
    Images(Query, Vec<String>),
    Reservations(Query),
    PlacementGroups(Query),
    Types,
    TypeOfferings,
    SpotPrices(Timestamp),
    MachineStatus,
    Templates(Query),
    CreateTemplate(String, Box<Content>),
    DeleteTemplate(String),
    CreateFleet(FleetRequest, usize, String),
    DryRunFleet(FleetRequest),
    DryRunInstance(String, String, String),
    Machines(Query),
    Terminate(Vec<String>),
    Reboot(String),
    Tag(Vec<String>, Tags),
    Parameter(String),
    Profile(String),
    Profiles(String),
    CreateProfile(String, String, Tags),
    TagProfile(String, Tags),
    AddRole(String, String),
    RemoveRole(String, String),
    DeleteProfile(String),
    RoleExists(String),
    Receive,
    DeleteMessage(String),
    Cluster(String),
    Products(String, PriceList),
    Account,
    ManagedResource(String),
}

/// Serves a cloud to other processes.
#[derive(Debug)]
pub struct Front {
    address: SocketAddr,
    held: watch::Sender<BTreeSet<&'static str>>,
    serving: tokio::task::JoinHandle<()>,
}

impl Front {
    /// Begins to serve, on a port that the system chooses.
    ///
    /// # Errors
    /// If there is none.
    pub async fn start(cloud: Cloud) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (held, holds) = watch::channel(BTreeSet::new());
        let serving = tokio::spawn(async move {
            // A connection that breaks is the caller's business.
            while let Ok((stream, _)) = listener.accept().await {
                let (cloud, holds) = (cloud.clone(), holds.clone());
                tokio::spawn(async move { drop(serve(stream, cloud, holds).await) });
            }
        });
        Ok(Self { address, held, serving })
    }

    /// What the other process' [`VARIABLE`] has to be.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// From now on answers to a call such as `ec2:CreateFleet` stay away, though it takes effect; until
    /// [`Self::release`]. Those to dry runs come.
    pub fn hold(&self, call: &'static str) {
        self.held.send_modify(|held| {
            held.insert(call);
        });
    }

    /// Lets all answers go.
    pub fn release(&self) {
        self.held.send_modify(BTreeSet::clear);
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(stream: TcpStream, cloud: Cloud, mut held: watch::Receiver<BTreeSet<&'static str>>) -> io::Result<()> {
    let Asked { call, request } = serde_json::from_slice(&receive(&stream).await?)?;
    let is_dry_run = matches!(request, Request::DryRunFleet(_) | Request::DryRunInstance(..));
    let answer: Answer =
        request.answer(&cloud).await.map_err(|error| Fault { code: error.code, message: error.message });
    // Without its sender there is nobody left to hold anything.
    drop(held.wait_for(|held| is_dry_run || !held.contains(call.as_str())).await);
    send(&stream, &answer).await
}

/// Writes a value as a line.
async fn send(stream: &TcpStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    let mut rest = &line[..];
    while !rest.is_empty() {
        stream.writable().await?;
        match stream.try_write(rest) {
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads a line.
async fn receive(stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut chunk = [0; 4096];
    while line.last() != Some(&b'\n') {
        stream.readable().await?;
        match stream.try_read(&mut chunk) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => line.extend_from_slice(chunk.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(line)
}

/// What was answered, as JSON.
fn json_of(answer: impl Serialize) -> Value {
    serde_json::to_value(answer).unwrap_or_else(|error| json!({ "not JSON": error.to_string() }))
}

impl Request {
    async fn answer(self, cloud: &Cloud) -> Result<Value, Error> {
        Ok(match self {
            Self::Subnets(query) => json_of(cloud.describe_subnets(&query).await?),
            Self::SecurityGroups(query) => json_of(cloud.describe_security_groups(&query).await?),
            Self::Images(query, owners) => json_of(cloud.describe_images(&query, &owners).await?),
            Self::Reservations(query) => json_of(cloud.describe_capacity_reservations(&query).await?),
            Self::PlacementGroups(query) => json_of(cloud.describe_placement_groups(&query).await?),
            Self::Types => json_of(cloud.describe_instance_types().await?),
            Self::TypeOfferings => json_of(cloud.describe_instance_type_offerings().await?),
            Self::SpotPrices(now) => json_of(cloud.describe_spot_price_history(now).await?),
            Self::MachineStatus => json_of(cloud.describe_instance_status().await?),
            Self::Templates(query) => json_of(cloud.describe_launch_templates(&query).await?),
            Self::CreateTemplate(name, content) => json_of(cloud.make_template(&name, *content).await?),
            Self::DeleteTemplate(id) => json_of(cloud.delete_launch_template(&id).await?),
            Self::CreateFleet(request, count, token) => json_of(cloud.create_fleet(&request, count, &token).await?),
            Self::DryRunFleet(request) => json_of(cloud.dry_run_fleet(&request).await?),
            Self::DryRunInstance(template, instance_type, subnet) => {
                json_of(cloud.dry_run_instance(&template, &instance_type, &subnet).await?)
            }
            Self::Machines(query) => json_of(cloud.describe_instances(&query).await?),
            Self::Terminate(ids) => json_of(cloud.terminate_instances(&ids).await?),
            Self::Reboot(id) => json_of(cloud.reboot_instance(&id).await?),
            Self::Tag(ids, tags) => json_of(cloud.create_tags(&ids, &tags).await?),
            Self::Parameter(name) => json_of(cloud.get_parameter(&name).await?),
            Self::Profile(name) => json_of(cloud.get_instance_profile(&name).await?),
            Self::Profiles(path) => json_of(cloud.list_instance_profiles(&path).await?),
            Self::CreateProfile(name, path, tags) => json_of(cloud.create_instance_profile(&name, &path, &tags).await?),
            Self::TagProfile(name, tags) => json_of(cloud.tag_instance_profile(&name, &tags).await?),
            Self::AddRole(profile, role) => json_of(cloud.add_role(&profile, &role).await?),
            Self::RemoveRole(profile, role) => json_of(cloud.remove_role(&profile, &role).await?),
            Self::DeleteProfile(name) => json_of(cloud.delete_instance_profile(&name).await?),
            Self::RoleExists(name) => json_of(cloud.role_exists(&name).await?),
            Self::Receive => json_of(cloud.receive().await?),
            Self::DeleteMessage(receipt) => json_of(cloud.delete(&receipt).await?),
            Self::Cluster(name) => json_of(cloud.describe_cluster(&name).await?),
            Self::Products(region, list) => json_of(cloud.get_products(&region, list).await?),
            Self::Account => json_of(cloud.account_id().await?),
            Self::ManagedResource(arn) => json_of(cloud.get_managed_resource(&arn).await?),
        })
    }
}

#[cfg(test)]
mod tests;
