package main

import (
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// machine is a Node that is initialized, with its NodeClaim, which consolidation may take.
func machine(name, pool string, of *cloudprovider.InstanceType, offering *cloudprovider.Offering) (*corev1.Node, *v1.NodeClaim) {
	begun := metav1.NewTime(time.Unix(1_700_000_000, 0))
	labels := map[string]string{}
	for _, all := range []scheduling.Requirements{of.Requirements, offering.Requirements} {
		for key, requirement := range all {
			if requirement.Operator() == corev1.NodeSelectorOpIn && requirement.Len() == 1 {
				labels[key] = requirement.Any()
			}
		}
	}
	labels[corev1.LabelHostname], labels[corev1.LabelInstanceTypeStable] = name, of.Name
	labels[v1.NodePoolLabelKey] = pool
	labels[v1.NodeRegisteredLabelKey], labels[v1.NodeInitializedLabelKey] = "true", "true"
	meta := metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels, CreationTimestamp: begun}
	node := &corev1.Node{
		ObjectMeta: *meta.DeepCopy(), Spec: corev1.NodeSpec{ProviderID: "bench:///" + name},
		Status: corev1.NodeStatus{
			Capacity: of.Capacity, Allocatable: of.Allocatable(),
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	claim := &v1.NodeClaim{
		ObjectMeta: meta,
		Status: v1.NodeClaimStatus{
			NodeName: name, ProviderID: node.Spec.ProviderID, Capacity: of.Capacity, Allocatable: node.Status.Allocatable,
		},
	}
	for _, condition := range []string{
		v1.ConditionTypeLaunched, v1.ConditionTypeRegistered, v1.ConditionTypeInitialized, v1.ConditionTypeConsolidatable,
	} {
		claim.Status.Conditions = append(claim.Status.Conditions, status.Condition{
			Type: condition, Status: metav1.ConditionTrue, Reason: condition, LastTransitionTime: begun,
		})
	}
	return node, claim
}
