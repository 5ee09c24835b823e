//! How calls to AWS fail, by the codes that it answers with.
//!
//! EC2 models none of its errors, so the code is all there is. The lists are those of `pkg/errors/errors.go` of
//! karpenter-provider-aws 1.15; what is in no list is [`Kind::Other`], which is never taken for a lack of capacity.

use std::fmt;

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The call, such as `ec2:CreateFleet`.
    pub call: &'static str,
    /// What callers branch on.
    pub kind: Kind,
    /// The service's code; none where no service answered.
    pub code: Option<String>,
    /// The service's words.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.call)?;
        match &self.code {
            Some(code) => write!(f, "{code}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Error {}

/// What a failed call means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// What the call names does not exist.
    NotFound,
    /// What the call makes is there.
    AlreadyExists,
    /// A dry run that would have succeeded.
    WouldSucceed,
    /// We may not do this.
    Unauthorized,
    /// Too many calls; it is worth trying again later.
    Throttled,
    /// A launch template of the call is gone.
    LaunchTemplateGone,
    /// What the user wants machines to be told is too much.
    UserDataTooLarge,
    /// There is no machine of this kind to be had now.
    NoCapacity,
    /// The service failed, or did not answer; it is worth trying again.
    ServerFault,
    /// Anything else.
    Other,
}

const LAUNCH_TEMPLATE_GONE: [&str; 2] =
    ["InvalidLaunchTemplateName.NotFoundException", "InvalidLaunchTemplateId.NotFound"];
const NOT_FOUND: [&str; 8] = [
    "InvalidCapacityReservationId.NotFound",
    "InvalidInstanceID.NotFound",
    "InvalidPlacementGroup.Unknown",
    "AWS.SimpleQueueService.NonExistentQueue",
    "QueueDoesNotExist",
    "NoSuchEntity",
    "ParameterNotFound",
    "ResourceNotFoundException",
];
const ALREADY_EXISTS: [&str; 2] = ["EntityAlreadyExists", "InvalidLaunchTemplateName.AlreadyExistsException"];
const UNAUTHORIZED: [&str; 5] =
    ["UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthFailure", "UnauthorizedException"];
const THROTTLED: [&str; 5] =
    ["RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException", "RequestThrottled"];
const USER_DATA_TOO_LARGE: &str = "InvalidUserData.Malformed";
const DRY_RUN: &str = "DryRunOperation";

/// What an answer means, from the code and HTTP status; neither is there where no service answered.
pub fn classify(code: Option<&str>, status: Option<u16>) -> Kind {
    let Some(code) = code else {
        return match status {
            Some(429) => Kind::Throttled,
            Some(400..=499) => Kind::Other,
            Some(_) | None => Kind::ServerFault,
        };
    };
    let lists: [(&[&str], Kind); 7] = [
        (&[DRY_RUN], Kind::WouldSucceed),
        (&LAUNCH_TEMPLATE_GONE, Kind::LaunchTemplateGone),
        (&NOT_FOUND, Kind::NotFound),
        (&ALREADY_EXISTS, Kind::AlreadyExists),
        (&UNAUTHORIZED, Kind::Unauthorized),
        (&THROTTLED, Kind::Throttled),
        (&[USER_DATA_TOO_LARGE], Kind::UserDataTooLarge),
    ];
    let listed = lists.iter().find(|(codes, _)| codes.contains(&code)).map(|(_, kind)| *kind);
    listed.unwrap_or_else(|| match (FleetFault::of(code), status) {
        (FleetFault::Other, Some(500..)) => Kind::ServerFault,
        (FleetFault::Other | FleetFault::SpotRoleMissing, _) => Kind::Other,
        _ => Kind::NoCapacity,
    })
}

/// What one error within the answer to a fleet request says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FleetFault {
    /// No machine of this type, in this zone, of this capacity type.
    NoCapacity,
    /// The account has used up a quota. It counts as a lack of capacity for what was asked.
    Quota,
    /// The subnet has no free addresses.
    NoAddresses,
    /// The reservation is used up: only its count was wrong.
    ReservationFull,
    /// The reservation cannot be used any more.
    ReservationUnavailable,
    /// The account has no role for spot, so nothing of that capacity type can be had.
    SpotRoleMissing,
    /// Anything else.
    Other,
}

impl FleetFault {
    /// What a code says.
    pub fn of(code: &str) -> Self {
        match code {
            "InsufficientInstanceCapacity" | "UnfulfillableCapacity" | "Unsupported" | "SpotMaxPriceTooLow" => {
                Self::NoCapacity
            }
            "MaxSpotInstanceCountExceeded" | "VcpuLimitExceeded" | "MaxFleetCountExceeded" => Self::Quota,
            "InsufficientFreeAddressesInSubnet" => Self::NoAddresses,
            "ReservationCapacityExceeded" => Self::ReservationFull,
            "InvalidCapacityReservationState.Unavailable" => Self::ReservationUnavailable,
            "AuthFailure.ServiceLinkedRoleCreationNotPermitted" => Self::SpotRoleMissing,
            _ => Self::Other,
        }
    }

    /// Whether trying another offering helps, so that the pods are planned again at once.
    pub const fn is_lack_of_capacity(self) -> bool {
        match self {
            Self::NoCapacity
            | Self::Quota
            | Self::NoAddresses
            | Self::ReservationFull
            | Self::ReservationUnavailable
            | Self::SpotRoleMissing => true,
            Self::Other => false,
        }
    }
}

/// The reason of condition `Launched` for a failed launch; Karpenter's names, found as it finds them, in its order.
pub fn launch_failure_reason(code: &str, message: &str) -> &'static str {
    let text = format!("{code}: {message}");
    let is_in = |parts: &[&str]| parts.iter().all(|part| text.contains(part));
    REASONS.iter().find(|(parts, _)| is_in(parts)).map_or("LaunchFailed", |(_, reason)| reason)
}

/// Texts that are all there, and what they mean. The first row that fits counts.
const REASONS: [(&[&str], &str); 20] = [
    (&["AuthFailure.ServiceLinkedRoleCreationNotPermitted"], "SpotSLRCreationFailed"),
    (&["UnauthorizedOperation", "AMI"], "AMIAuthorizationFailure"),
    (&["not authorized for images"], "AMIAuthorizationFailure"),
    (&["UnauthorizedOperation"], "Unauthorized"),
    (&["AccessDenied"], "Unauthorized"),
    (&["InvalidParameter", "security group", "subnet"], "SecurityGroupSubnetVPCMismatch"),
    (&["iamInstanceProfile.name is invalid"], "InstanceProfileNameInvalid"),
    (&["InvalidLaunchTemplateName.NotFoundException"], "LaunchTemplateNotFound"),
    (&["InvalidLaunchTemplateId.NotFound"], "LaunchTemplateNotFound"),
    (&["User data is limited to"], "UserDataSizeLimitExceeded"),
    (&["InvalidAMIID.Malformed"], "InvalidAMIID"),
    (&["InvalidAMIID.NotFound"], "AMINotFound"),
    (&["RequestLimitExceeded"], "RequestLimitExceeded"),
    (&["InternalError"], "InternalError"),
    (&["not eligible for Free Tier"], "FreeTierIneligible"),
    (&["MaxFleetCountExceeded"], "FleetQuotaExceeded"),
    (&["PendingVerification"], "AccountPendingVerification"),
    (&["MaxSpotInstanceCountExceeded"], "SpotQuotaExceeded"),
    (&["VcpuLimitExceeded"], "VCPULimitExceeded"),
    (&["InsufficientFreeAddressesInSubnet"], "InsufficientFreeAddressesInSubnet"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_apart() {
        for (code, status, expected) in [
            ("InvalidInstanceID.NotFound", 400, Kind::NotFound),
            ("NoSuchEntity", 404, Kind::NotFound),
            ("ParameterNotFound", 400, Kind::NotFound),
            ("AWS.SimpleQueueService.NonExistentQueue", 400, Kind::NotFound),
            ("EntityAlreadyExists", 409, Kind::AlreadyExists),
            ("DryRunOperation", 412, Kind::WouldSucceed),
            ("UnauthorizedOperation", 403, Kind::Unauthorized),
            ("AccessDenied", 403, Kind::Unauthorized),
            ("RequestLimitExceeded", 503, Kind::Throttled),
            ("ThrottlingException", 400, Kind::Throttled),
            ("InvalidLaunchTemplateName.NotFoundException", 400, Kind::LaunchTemplateGone),
            ("InvalidLaunchTemplateId.NotFound", 400, Kind::LaunchTemplateGone),
            ("InsufficientInstanceCapacity", 500, Kind::NoCapacity),
            ("VcpuLimitExceeded", 400, Kind::NoCapacity),
            ("ReservationCapacityExceeded", 400, Kind::NoCapacity),
            ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", 400, Kind::Other),
            ("InvalidUserData.Malformed", 400, Kind::UserDataTooLarge),
            ("InternalError", 500, Kind::ServerFault),
            ("InvalidParameterValue", 400, Kind::Other),
            ("SomethingNew", 400, Kind::Other),
        ] {
            assert_eq!(classify(Some(code), Some(status)), expected, "{code}");
        }
    }

    #[test]
    fn an_answer_without_a_code_is_judged_by_its_status() {
        for (status, expected) in [
            (None, Kind::ServerFault),
            (Some(500), Kind::ServerFault),
            (Some(502), Kind::ServerFault),
            (Some(429), Kind::Throttled),
            (Some(403), Kind::Other),
        ] {
            assert_eq!(classify(None, status), expected, "{status:?}");
        }
    }

    #[test]
    fn faults_of_fleets_are_told_apart_and_unknown_ones_are_no_lack_of_capacity() {
        for (code, expected) in [
            ("InsufficientInstanceCapacity", FleetFault::NoCapacity),
            ("UnfulfillableCapacity", FleetFault::NoCapacity),
            ("Unsupported", FleetFault::NoCapacity),
            ("SpotMaxPriceTooLow", FleetFault::NoCapacity),
            ("MaxSpotInstanceCountExceeded", FleetFault::Quota),
            ("VcpuLimitExceeded", FleetFault::Quota),
            ("MaxFleetCountExceeded", FleetFault::Quota),
            ("InsufficientFreeAddressesInSubnet", FleetFault::NoAddresses),
            ("ReservationCapacityExceeded", FleetFault::ReservationFull),
            ("InvalidCapacityReservationState.Unavailable", FleetFault::ReservationUnavailable),
            ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", FleetFault::SpotRoleMissing),
        ] {
            assert_eq!(FleetFault::of(code), expected);
            assert!(expected.is_lack_of_capacity());
        }
        assert_eq!(FleetFault::of("InvalidAMIID.NotFound"), FleetFault::Other);
        assert!(!FleetFault::Other.is_lack_of_capacity());
    }

    #[test]
    fn reasons_are_karpenters() {
        for (code, message, expected) in [
            ("UnauthorizedOperation", "You are not authorized to perform this operation", "Unauthorized"),
            ("InvalidAMIID.NotFound", "The image id '[ami-1]' does not exist", "AMINotFound"),
            (
                "InvalidParameterValue",
                "Value (x) for parameter iamInstanceProfile.name is invalid",
                "InstanceProfileNameInvalid",
            ),
            ("InvalidParameterValue", "User data is limited to 16384 bytes", "UserDataSizeLimitExceeded"),
            ("VcpuLimitExceeded", "more than your limit", "VCPULimitExceeded"),
            ("Client.New", "?", "LaunchFailed"),
        ] {
            assert_eq!(launch_failure_reason(code, message), expected, "{code}");
        }
    }

    #[test]
    fn an_error_names_call_code_and_reason() {
        let error = Error {
            call: "ec2:CreateFleet",
            kind: Kind::Throttled,
            code: Some("RequestLimitExceeded".to_owned()),
            message: "slow down".to_owned(),
        };
        assert_eq!(error.to_string(), "ec2:CreateFleet: RequestLimitExceeded: slow down");
        assert_eq!(Error { code: None, ..error }.to_string(), "ec2:CreateFleet: slow down");
    }
}
