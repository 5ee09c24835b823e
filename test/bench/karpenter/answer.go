package main

import (
	"fmt"
	"sort"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
)

// What is printed.
type answer struct {
	ReadNanos     int64       `json:"readNanos"`
	CPUNanos      int64       `json:"cpuNanos"`
	WallNanos     int64       `json:"wallNanos"`
	SolveCPUNanos int64       `json:"solveCpuNanos"`
	PeakKiB       int64       `json:"peakKib"`
	TimedOut      bool        `json:"timedOut"`
	Claims        []claim     `json:"claims"`
	Existing      []placement `json:"existing"`
	Unplaced      []string    `json:"unplaced"`
	FirstError    string      `json:"firstError"`
}

type claim struct {
	NodePool      string        `json:"nodePool"`
	InstanceTypes []string      `json:"instanceTypes"`
	Requirements  []requirement `json:"requirements"`
	Pods          []string      `json:"pods"`
}

type requirement struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

type placement struct {
	Node string   `json:"node"`
	Pods []string `json:"pods"`
}

func answerOf(results scheduling.Results, input *input) *answer {
	answer := &answer{Claims: []claim{}, Existing: []placement{}, Unplaced: []string{}}
	placed := map[string]bool{}
	names := func(pods []*corev1.Pod) []string {
		names := []string{}
		for _, pod := range pods {
			names = append(names, pod.Name)
			placed[pod.Name] = true
		}
		return names
	}
	for _, of := range results.NewNodeClaims {
		claim := claim{NodePool: of.NodePoolName, InstanceTypes: []string{}, Requirements: []requirement{}, Pods: names(of.Pods)}
		for _, instanceType := range of.InstanceTypeOptions {
			claim.InstanceTypes = append(claim.InstanceTypes, instanceType.Name)
		}
		for _, of := range of.Requirements.NodeSelectorRequirements() {
			claim.Requirements = append(claim.Requirements, requirement{of.Key, string(of.Operator), append([]string{}, of.Values...)})
		}
		sort.Slice(claim.Requirements, func(i, j int) bool { return claim.Requirements[i].Key < claim.Requirements[j].Key })
		answer.Claims = append(answer.Claims, claim)
	}
	for _, node := range results.ExistingNodes {
		if len(node.Pods) > 0 {
			answer.Existing = append(answer.Existing, placement{Node: node.Name(), Pods: names(node.Pods)})
		}
	}
	for _, pod := range input.pending {
		if !placed[pod.Name] {
			answer.Unplaced = append(answer.Unplaced, pod.Name)
		}
	}
	for pod, err := range results.PodErrors {
		text := fmt.Sprintf("%s: %v", pod.Name, err)
		if answer.FirstError == "" || text < answer.FirstError {
			answer.FirstError = text
		}
	}
	return answer
}
