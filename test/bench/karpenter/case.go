package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

const nanoPerDollar = 1e9

// One line of a case; one of the fields is there.
type line struct {
	Options      *struct{ Preferences string }
	InstanceType *instanceType
	NodePool     *v1.NodePool
	DaemonSet    *appsv1.DaemonSet
	PodTemplate  *corev1.PodTemplateSpec
	Node         *corev1.Node
	// Of the node in the same line, if it is one of Karpenter's.
	NodeClaim *v1.NodeClaim
	// Of the node in the same line, or waiting where there is none: how many pods of which template.
	Pods []podCount
}

type podCount struct{ Template, Count int }

type instanceType struct {
	Name         string
	Requirements map[string][]string
	Offerings    []struct {
		Zone         string
		CapacityType string
		Price        int64
		Available    bool
	}
	Capacity corev1.ResourceList
	Overhead struct {
		KubeReserved      corev1.ResourceList
		SystemReserved    corev1.ResourceList
		EvictionThreshold corev1.ResourceList
	}
}

// A case, read.
type input struct {
	ignorePreferences bool
	instanceTypes     []*cloudprovider.InstanceType
	nodePools         []*v1.NodePool
	daemonPods        []*corev1.Pod
	nodes             []*corev1.Node
	nodeClaims        []*v1.NodeClaim // of the nodes, where these have any
	bound             []*corev1.Pod
	pending           []*corev1.Pod
}

func readCase(path string) (*input, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	input := &input{}
	var templates []*corev1.PodTemplateSpec
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<24)
	for number := 1; lines.Scan(); number++ {
		var line line
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&line); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		switch {
		case line.Options != nil:
			input.ignorePreferences = line.Options.Preferences == "Ignore"
		case line.InstanceType != nil:
			input.instanceTypes = append(input.instanceTypes, line.InstanceType.compile())
		case line.NodePool != nil:
			input.nodePools = append(input.nodePools, line.NodePool)
		case line.DaemonSet != nil:
			set := line.DaemonSet
			input.daemonPods = append(input.daemonPods, pod(&set.Spec.Template, set.Namespace, set.Name))
		case line.PodTemplate != nil:
			templates = append(templates, line.PodTemplate)
		default:
			for _, of := range line.Pods {
				for range of.Count {
					template := templates[of.Template]
					if line.Node == nil {
						name := fmt.Sprintf("pod-%06d", len(input.pending))
						input.pending = append(input.pending, isUnschedulable(pod(template, "bench", name)))
						continue
					}
					bound := pod(template, "bench", fmt.Sprintf("bound-%06d", len(input.bound)))
					bound.Spec.NodeName = line.Node.Name
					bound.Status.Phase = corev1.PodRunning
					input.bound = append(input.bound, bound)
				}
			}
			if line.Node != nil {
				input.nodes = append(input.nodes, line.Node)
			}
			if line.NodeClaim != nil {
				input.nodeClaims = append(input.nodeClaims, line.NodeClaim)
			}
		}
	}
	return input, lines.Err()
}

func pod(template *corev1.PodTemplateSpec, namespace, name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Name, pod.Namespace, pod.UID = name, namespace, types.UID(name)
	pod.CreationTimestamp = metav1.Unix(1_700_000_000, 0)
	return pod
}

func (t *instanceType) compile() *cloudprovider.InstanceType {
	compiled := &cloudprovider.InstanceType{
		Name: t.Name, Requirements: scheduling.NewRequirements(), Capacity: t.Capacity,
		Overhead: &cloudprovider.InstanceTypeOverhead{
			KubeReserved:      t.Overhead.KubeReserved,
			SystemReserved:    t.Overhead.SystemReserved,
			EvictionThreshold: t.Overhead.EvictionThreshold,
		},
	}
	for key, values := range t.Requirements {
		compiled.Requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...))
	}
	for _, offering := range t.Offerings {
		compiled.Offerings = append(compiled.Offerings, &cloudprovider.Offering{
			Requirements: scheduling.NewLabelRequirements(map[string]string{
				corev1.LabelTopologyZone: offering.Zone, v1.CapacityTypeLabelKey: offering.CapacityType,
			}),
			Price: float64(offering.Price) / nanoPerDollar, Available: offering.Available,
		})
	}
	return compiled
}
