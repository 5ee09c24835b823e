//! Provider ids of machines of EC2: `aws:///<zone>/<instance id>`, as the cloud controller manager writes them.

use model::ProviderId;

const SCHEME: &str = "aws";

/// Where a machine is and which it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId {
    /// The name of its zone.
    pub zone: String,
    /// The instance's id, such as `i-0123456789abcdef0`.
    pub instance: String,
}

impl MachineId {
    /// Reads a provider id; none if it is not one of a machine of EC2. Other forms that are known: Fargate's
    /// `aws:///<zone>/<uuid>/fargate-<host>` and hybrid nodes' `eks-hybrid:///…`, which are not ours to manage.
    pub fn parse(provider_id: &ProviderId) -> Option<Self> {
        let path = provider_id.as_str().strip_prefix(SCHEME)?.strip_prefix(":///")?;
        let (zone, instance) = path.split_once('/')?;
        let is_instance = instance.strip_prefix("i-").is_some_and(|id| {
            !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        });
        (!zone.is_empty() && is_instance).then(|| Self { zone: zone.to_owned(), instance: instance.to_owned() })
    }

    /// The provider id.
    pub fn to_provider_id(&self) -> ProviderId {
        format!("{SCHEME}:///{}/{}", self.zone, self.instance).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_id_names_zone_and_instance() {
        let id = ProviderId::from("aws:///us-east-1a/i-0123456789abcdef0");
        let machine = MachineId::parse(&id).unwrap();
        assert_eq!((&*machine.zone, &*machine.instance), ("us-east-1a", "i-0123456789abcdef0"));
        assert_eq!(machine.to_provider_id(), id);
    }

    #[test]
    fn nodes_that_are_no_machines_of_ec2_have_other_ids() {
        for id in [
            "",
            "i-1",
            "aws://us-east-1a/i-1",
            "aws:///i-1",
            "aws:////i-1",
            "aws:///us-east-1a/",
            "aws:///us-east-1a/i-",
            "aws:///us-east-1a/i-1/more",
            "aws:///us-east-1a/0123-4567/fargate-ip-10-0-0-1.ec2.internal",
            "kwok-aws:///us-east-1a/i-1",
            "eks-hybrid:///us-east-1/cluster/mi-1",
        ] {
            assert_eq!(MachineId::parse(&id.into()), None, "{id}");
        }
    }
}
