package main

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
)

// tryNode takes the pod through the plugins' extension points as the scheduler does, up to what is written before a pod is
// bound.
func tryNode(ctx context.Context, q *question, node *v1.Node) (*onNode, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	world, err := newWorld(ctx, q)
	if err != nil {
		return nil, err
	}
	info, ok := world.nodes[node.Name]
	if !ok {
		return nil, fmt.Errorf("it is not in the snapshot")
	}
	pod := q.Pod.DeepCopy()
	state := framework.NewCycleState()
	skipped := map[string]bool{}
	var status *fwk.Status
	stage := func(name string, call func(fwk.Plugin) *fwk.Status) (*onNode, bool) {
		for _, plugin := range world.plugins {
			if skipped[plugin.Name()] {
				continue
			}
			status = call(plugin)
			if status.IsSkip() {
				skipped[plugin.Name()] = true
				continue
			}
			if !status.IsSuccess() {
				return &onNode{
					Node: node.Name, Stage: name, Plugin: plugin.Name(), Code: status.Code().String(), Reasons: status.Reasons(),
				}, false
			}
		}
		return nil, true
	}
	infos := []fwk.NodeInfo{info}
	if answer, ok := stage("PreFilter", func(plugin fwk.Plugin) *fwk.Status {
		_, status := plugin.(fwk.PreFilterPlugin).PreFilter(ctx, state, pod, infos)
		return status
	}); !ok {
		return answer, nil
	}
	if answer, ok := stage("Filter", func(plugin fwk.Plugin) *fwk.Status {
		return plugin.(fwk.FilterPlugin).Filter(ctx, state, pod, info)
	}); !ok {
		return answer, nil
	}
	if answer, ok := stage("Reserve", func(plugin fwk.Plugin) *fwk.Status {
		if reserving, ok := plugin.(fwk.ReservePlugin); ok {
			return reserving.Reserve(ctx, state, pod, node.Name)
		}
		return nil
	}); !ok {
		return answer, nil
	}
	costs := dynamicresources.ExtractPodNodeAllocatableResourceClaimStatus(klog.FromContext(ctx), state, node.Name)
	// As the scheduler does when it assumes the pod on the node.
	pod.Status.NodeAllocatableResourceClaimStatuses = costs
	if answer, ok := stage("PreBind", func(plugin fwk.Plugin) *fwk.Status {
		if binding, ok := plugin.(fwk.PreBindPlugin); ok {
			return binding.PreBind(ctx, state, pod, node.Name)
		}
		return nil
	}); !ok {
		return answer, nil
	}
	answer := &onNode{Node: node.Name, Stage: "PreBind", Code: fwk.Success.String(), Costs: costs}
	if err := world.written(ctx, pod, answer); err != nil {
		return nil, err
	}
	if refused := refusedCosts(q.Pod, costs); len(refused) > 0 {
		return &onNode{Node: node.Name, Stage: "PreBind", Plugin: "kube-apiserver", Code: fwk.Error.String(), Reasons: refused}, nil
	}
	return answer, nil
}

// refusedCosts asks the API server's own rules about the status that the plugin writes, which the client without a server
// takes: what is wrong with the costs in it.
func refusedCosts(pod *v1.Pod, costs []v1.NodeAllocatableResourceClaimStatus) []string {
	charged := pod.DeepCopy()
	charged.Status.NodeAllocatableResourceClaimStatuses = costs
	before, after := &core.Pod{}, &core.Pod{}
	for from, to := range map[*v1.Pod]*core.Pod{pod.DeepCopy(): before, charged: after} {
		if err := corev1.Convert_v1_Pod_To_core_Pod(from, to, nil); err != nil {
			return []string{err.Error()}
		}
	}
	var refused []string
	for _, problem := range validation.ValidatePodStatusUpdate(after, before, validation.PodValidationOptions{}) {
		if strings.HasPrefix(problem.Field, "status.nodeAllocatableResourceClaimStatuses") {
			refused = append(refused, problem.Error())
		}
	}
	return refused
}

// written adds what the plugins wrote: the pod's claims, in the order of its entries, and the one for extended resources.
func (w *world) written(ctx context.Context, pod *v1.Pod, answer *onNode) error {
	claims := w.client.ResourceV1().ResourceClaims(pod.Namespace)
	var names []string
	for _, entry := range pod.Spec.ResourceClaims {
		if entry.ResourceClaimName != nil {
			names = append(names, *entry.ResourceClaimName)
		}
	}
	current, err := w.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if extended := current.Status.ExtendedResourceClaimStatus; extended != nil {
		names = append(names, extended.ResourceClaimName)
		answer.Mappings = extended.RequestMappings
	}
	for _, name := range names {
		claim, err := claims.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		claim.ManagedFields = nil
		answer.Claims = append(answer.Claims, claim)
	}
	return nil
}
