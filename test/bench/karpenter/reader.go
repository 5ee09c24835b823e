package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// reader answers for pods and nodes as an informer's cache would, by index. Nothing else is in a case, so all else is
// asked of a client that has no objects.
type reader struct {
	client.Client
	pods   []*corev1.Pod
	byNode map[string][]*corev1.Pod
	nodes  map[string]*corev1.Node
}

func newReader(input *input) *reader {
	reader := &reader{
		Client: fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(),
		byNode: map[string][]*corev1.Pod{}, nodes: map[string]*corev1.Node{},
	}
	reader.pods = append(append(reader.pods, input.bound...), input.pending...)
	for _, pod := range input.bound {
		reader.byNode[pod.Spec.NodeName] = append(reader.byNode[pod.Spec.NodeName], pod)
	}
	for _, node := range input.nodes {
		reader.nodes[node.Name] = node
	}
	return reader
}

func (r *reader) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if node, ok := object.(*corev1.Node); ok {
		if known, ok := r.nodes[key.Name]; ok {
			known.DeepCopyInto(node)
			return nil
		}
	}
	return r.Client.Get(ctx, key, object, opts...)
}

func (r *reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	pods, ok := list.(*corev1.PodList)
	if !ok {
		return r.Client.List(ctx, list, opts...)
	}
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
	return nil
}
