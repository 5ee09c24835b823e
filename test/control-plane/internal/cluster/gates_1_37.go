//go:build kubernetes_1_37

package cluster

// offByDefault are the gates of Kubernetes 1.37 around DRA and pod groups that are off unless asked for. The apiserver, the
// controller manager and the scheduler each know all of them, so all three get the same list.
// GenericWorkload stands for what 1.36 had in gates of their own: gangs, and preemption for groups.
var offByDefault = []string{
	"CompositePodGroup",
	"DRADerivedAttributes",
	"DRADeviceCompatibilityGroups",
	"DRAFractionalCapacityRange",
	"DRAListTypeAttributes",
	"DRANodeAllocatableResources",
	"DRAOptionalNodeOperations",
	"DRAPartitionableDevicesType",
	"DRAResourcePoolStatus",
	"DRAWorkloadResourceClaims",
	"GenericWorkload",
	"PodGroupPreemptionPolicy",
	"TopologyAwareWorkloadScheduling",
	"WorkloadWithJob",
}

// apisOffByDefault are the API versions those gates need, and older ones of the same objects.
var apisOffByDefault = []string{
	"resource.k8s.io/v1alpha3",
	"resource.k8s.io/v1beta2",
	"scheduling.k8s.io/v1alpha3",
	"scheduling.k8s.io/v1beta1",
}
