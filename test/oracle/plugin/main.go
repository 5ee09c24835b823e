// Answers with kube-scheduler's own plugins what a pod gets of devices on a node, and what they cost of the node: JSON
// lines in, JSON lines out. README.md says what a question and an answer hold.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

const (
	maxLineBytes = 16 << 20
	sideBySide   = 32
)

// question is a small cluster, and a pod that is to be scheduled in it.
type question struct {
	Name     string                       `json:"name"`
	Features []string                     `json:"features"`
	Classes  []*resourceapi.DeviceClass   `json:"classes"`
	Slices   []*resourceapi.ResourceSlice `json:"slices"`
	Nodes    []*v1.Node                   `json:"nodes"`
	Claims   []*resourceapi.ResourceClaim `json:"claims"`
	// Running are pods on the nodes.
	Running []*v1.Pod `json:"running"`
	Pod     *v1.Pod   `json:"pod"`
}

type answer struct {
	Name  string   `json:"name"`
	Nodes []onNode `json:"nodes"`
	// Unanswered says why there is no answer: the time was over, or a plugin crashed on what an API server would have
	// refused.
	Unanswered string `json:"unanswered,omitempty"`
}

// onNode is what becomes of the pod on one node, by itself.
type onNode struct {
	Node string `json:"node"`
	// Stage is the extension point that had the last word, PreBind if all went well.
	Stage   string   `json:"stage"`
	Plugin  string   `json:"plugin,omitempty"`
	Code    string   `json:"code"`
	Reasons []string `json:"reasons,omitempty"`
	// Claims are the pod's claims as they are written; that for extended resources is the last.
	Claims   []*resourceapi.ResourceClaim            `json:"claims,omitempty"`
	Mappings []v1.ContainerExtendedResourceRequest   `json:"mappings,omitempty"`
	Costs    []v1.NodeAllocatableResourceClaimStatus `json:"costs,omitempty"`
}

func main() {
	timeout := flag.Duration("timeout", 10*time.Second, "give up a question after that long")
	flag.Parse()
	klog.SetLogger(logr.Discard())
	metrics.Register()
	if err := run(*timeout); err != nil {
		fmt.Fprintln(os.Stderr, "plugin oracle:", err)
		os.Exit(1)
	}
}

func run(timeout time.Duration) error {
	if err := enableGates(); err != nil {
		return err
	}
	// Answers keep the order of the questions. The plugins wait more than they compute, so several are asked at a time.
	waiting := make(chan chan *answer, sideBySide)
	failed := make(chan error, 1)
	go func() {
		defer close(waiting)
		in := bufio.NewScanner(os.Stdin)
		in.Buffer(make([]byte, 0, 1<<20), maxLineBytes)
		for line := 1; in.Scan(); line++ {
			q := &question{}
			if err := json.Unmarshal(in.Bytes(), q); err != nil {
				failed <- fmt.Errorf("line %d: %w", line, err)
				return
			}
			reply := make(chan *answer, 1)
			waiting <- reply
			go func() { reply <- ask(q, timeout) }()
		}
		failed <- in.Err()
	}()
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	for reply := range waiting {
		if err := encoder.Encode(<-reply); err != nil {
			return err
		}
		// One line at a time, so that a caller can wait for each.
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return <-failed
}

func ask(q *question, timeout time.Duration) (reply *answer) {
	reply = &answer{Name: q.Name}
	defer func() {
		if crash := recover(); crash != nil {
			reply.Unanswered = fmt.Sprintf("crashed: %v", crash)
		}
	}()
	if q.Pod == nil {
		reply.Unanswered = "there is no pod"
		return reply
	}
	for _, pod := range append([]*v1.Pod{q.Pod}, q.Running...) {
		requestLimits(pod)
	}
	for _, node := range q.Nodes {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		result, err := tryNode(ctx, q, node)
		cancel()
		if err != nil {
			reply.Unanswered = fmt.Sprintf("node %s: %v", node.Name, err)
			return reply
		}
		reply.Nodes = append(reply.Nodes, *result)
	}
	return reply
}

// requestLimits does what the API server does: a limit without a request is a request.
func requestLimits(pod *v1.Pod) {
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for index := range containers {
			resources := &containers[index].Resources
			for name, amount := range resources.Limits {
				if _, ok := resources.Requests[name]; ok {
					continue
				}
				if resources.Requests == nil {
					resources.Requests = v1.ResourceList{}
				}
				resources.Requests[name] = amount
			}
		}
	}
}
