package main

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// reader answers for pods, nodes, NodeClaims and NodePools as an informer's cache would, by index. Nothing else is in a
// case, so all else is asked of a client that has no objects.
type reader struct {
	client.Client
	pods      []*corev1.Pod
	places    map[string]int // of pods, by name
	byNode    map[string][]*corev1.Pod
	nodes     map[string]*corev1.Node
	claims    map[string]*v1.NodeClaim
	nodePools []*v1.NodePool
}

func newReader(input *input) *reader {
	reader := &reader{
		Client: fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(),
		places: map[string]int{}, byNode: map[string][]*corev1.Pod{}, nodes: map[string]*corev1.Node{},
		claims: map[string]*v1.NodeClaim{}, nodePools: input.nodePools,
	}
	reader.pods = append(append(reader.pods, input.bound...), input.pending...)
	for place, pod := range reader.pods {
		reader.places[pod.Name] = place
	}
	for _, pod := range input.bound {
		reader.byNode[pod.Spec.NodeName] = append(reader.byNode[pod.Spec.NodeName], pod)
	}
	for _, node := range input.nodes {
		reader.nodes[node.Name] = node
	}
	for _, claim := range input.nodeClaims {
		reader.claims[claim.Name] = claim
	}
	return reader
}

// add makes a machine known.
func (r *reader) add(node *corev1.Node, claim *v1.NodeClaim) {
	r.nodes[node.Name], r.claims[claim.Name] = node, claim
}

// remove forgets a machine, which has no pods any more.
func (r *reader) remove(name string) {
	delete(r.nodes, name)
	delete(r.claims, name)
	delete(r.byNode, name)
}

// move binds a pod to another node, as another object: whoever has the old one keeps it as it was.
func (r *reader) move(pod *corev1.Pod, to string) *corev1.Pod {
	place := r.places[pod.Name]
	from := r.pods[place].Spec.NodeName
	r.byNode[from] = slices.DeleteFunc(r.byNode[from], func(other *corev1.Pod) bool { return other.Name == pod.Name })
	moved := r.pods[place].DeepCopy()
	moved.Spec.NodeName = to
	r.pods[place] = moved
	r.byNode[to] = append(r.byNode[to], moved)
	return moved
}

func (r *reader) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if node, ok := object.(*corev1.Node); ok {
		if known, ok := r.nodes[key.Name]; ok {
			known.DeepCopyInto(node)
			return nil
		}
	}
	if claim, ok := object.(*v1.NodeClaim); ok {
		if known, ok := r.claims[key.Name]; ok {
			known.DeepCopyInto(claim)
			return nil
		}
	}
	return r.Client.Get(ctx, key, object, opts...)
}

func (r *reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	switch list := list.(type) {
	case *v1.NodePoolList:
		for _, pool := range r.nodePools {
			list.Items = append(list.Items, *pool)
		}
		return nil
	case *v1.NodeClaimList:
		for _, claim := range r.claims {
			list.Items = append(list.Items, *claim)
		}
		return nil
	case *corev1.PodList:
		r.listPods(list, opts)
		return nil
	}
	return r.Client.List(ctx, list, opts...)
}

func (r *reader) listPods(pods *corev1.PodList, opts []client.ListOption) {
	var options client.ListOptions
	options.ApplyOptions(opts)
	candidates := r.pods
	if options.FieldSelector != nil {
		if node, ok := options.FieldSelector.RequiresExactMatch("spec.nodeName"); ok {
			candidates = r.byNode[node]
		}
	}
	for _, pod := range candidates {
		inNamespace := options.Namespace == "" || options.Namespace == pod.Namespace
		if inNamespace && (options.LabelSelector == nil || options.LabelSelector.Matches(labels.Set(pod.Labels))) {
			pods.Items = append(pods.Items, *pod)
		}
	}
}
