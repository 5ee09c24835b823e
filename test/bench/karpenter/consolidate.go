package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/state/cost"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"
)

// What consolidating a fleet took and left.
type consolidated struct {
	ReadNanos int64 `json:"readNanos"`
	// Of the first round, and of all.
	FirstCPUNanos int64 `json:"firstCpuNanos"`
	CPUNanos      int64 `json:"cpuNanos"`
	WallNanos     int64 `json:"wallNanos"`
	PeakKiB       int64 `json:"peakKib"`
	// Nodes that consolidation might take in the first round.
	Candidates int `json:"candidates"`
	Rounds     int `json:"rounds"`
	Commands   int `json:"commands"`
	Evictions  int `json:"evictions"`
	// It was stopped; what it had done by then is here.
	TimedOut         bool  `json:"timedOut"`
	Nodes            int   `json:"nodes"`
	PriceNanoPerHour int64 `json:"priceNanoUsdPerHour"`
}

// A fleet that commands change at once: no machine takes time to come, and no pod to move.
type fleet struct {
	*input
	reader   *reader
	cluster  *state.Cluster
	provider *fake.CloudProvider
	launched int
}

// unvalidated takes commands as they are computed: nothing changes in the fifteen seconds that Karpenter waits before it
// looks at them again.
type unvalidated struct{}

func (unvalidated) Validate(_ context.Context, command disruption.Command, _ time.Duration) (disruption.Command, error) {
	return command, nil
}

// consolidate asks Karpenter's methods in the order of its controller, and carries out what the first says that has
// something to say, until none has.
func consolidate(path string, limit time.Duration) (*consolidated, error) {
	begun := time.Now()
	input, err := readCase(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	ctx := settings().ToContext(context.Background())
	fleet, err := newFleet(ctx, input)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer := &consolidated{ReadNanos: time.Since(begun).Nanoseconds()}
	before := usage()
	round := fleet.rounds()
	for {
		commands, candidates, err := round(ctx)
		timedOut := ctx.Err() != nil
		if err != nil && !timedOut {
			return nil, err
		}
		if answer.Rounds == 0 {
			answer.Candidates, answer.FirstCPUNanos = candidates, usage().cpu-before.cpu
		}
		answer.Rounds++
		answer.TimedOut = timedOut
		if timedOut || len(commands) == 0 {
			break
		}
		for _, command := range commands {
			moved, err := fleet.carryOut(ctx, command)
			if err != nil {
				return nil, err
			}
			answer.Commands++
			answer.Evictions += moved
		}
	}
	after := usage()
	answer.CPUNanos = after.cpu - before.cpu
	answer.WallNanos = after.wall.Sub(before.wall).Nanoseconds()
	answer.PeakKiB = after.peakKiB
	answer.Nodes = len(fleet.reader.nodes)
	answer.PriceNanoPerHour, err = fleet.price()
	return answer, err
}

func newFleet(ctx context.Context, input *input) (*fleet, error) {
	provider := fake.NewCloudProvider()
	provider.InstanceTypes = input.instanceTypes
	// Whose kind of node class a NodePool names is its provider, and here that is the one of Karpenter's tests.
	for _, pool := range input.nodePools {
		pool.Spec.Template.Spec.NodeClassRef.Group, pool.Spec.Template.Spec.NodeClassRef.Kind = "karpenter.test.sh", "TestNodeClass"
		for _, condition := range []string{v1.ConditionTypeValidationSucceeded, v1.ConditionTypeNodeClassReady} {
			pool.StatusConditions().SetTrue(condition)
		}
	}
	reader := newReader(input)
	cluster := state.NewCluster(clock.RealClock{}, reader, provider)
	for index, node := range input.nodes {
		cluster.UpdateNodeClaim(input.nodeClaims[index])
		if err := cluster.UpdateNode(ctx, node); err != nil {
			return nil, fmt.Errorf("node %s: %w", node.Name, err)
		}
	}
	return &fleet{input: input, reader: reader, cluster: cluster, provider: provider}, nil
}

// rounds gives what one round of the controller computes: commands, and how many nodes consolidation might take.
func (f *fleet) rounds() func(context.Context) ([]disruption.Command, int, error) {
	now := clock.RealClock{}
	provisioner := provisioning.NewProvisioner(f.reader, silent{}, f.provider, f.cluster, now,
		deviceallocation.NewController(f.reader), virtualpods.NewVirtualPodCache(f.reader))
	queue := disruption.NewQueue(f.reader, silent{}, f.cluster, now, provisioner)
	shared := disruption.MakeConsolidation(now, f.cluster, f.reader, provisioner, f.provider, silent{}, queue)
	asItIs := disruption.WithValidator(unvalidated{})
	methods := []disruption.Method{
		disruption.NewEmptiness(shared, asItIs),
		disruption.NewMultiNodeConsolidation(shared, asItIs),
		disruption.NewSingleNodeConsolidation(shared, asItIs),
	}
	return func(ctx context.Context) ([]disruption.Command, int, error) {
		most := 0
		for _, method := range methods {
			candidates, totals, err := disruption.GetCandidatesWithTotals(ctx, f.cluster, f.reader, silent{}, now, f.provider,
				method.ShouldDisrupt, method.Class(), queue, (*cost.ClusterCost)(nil))
			if err != nil {
				return nil, most, fmt.Errorf("candidates: %w", err)
			}
			most = max(most, len(candidates))
			if len(candidates) == 0 {
				continue
			}
			if method, ok := method.(disruption.NodePoolTotalsSetter); ok {
				method.SetNodePoolTotals(totals)
			}
			budgets, err := disruption.BuildDisruptionBudgetMapping(ctx, f.cluster, now, f.reader, f.provider, silent{}, method.Reason())
			if err != nil {
				return nil, most, fmt.Errorf("budgets: %w", err)
			}
			commands, err := method.ComputeCommands(ctx, budgets, candidates...)
			if err != nil {
				return nil, most, fmt.Errorf("commands: %w", err)
			}
			commands = slices.DeleteFunc(commands, func(command disruption.Command) bool {
				return command.Decision() == disruption.NoOpDecision
			})
			if len(commands) > 0 {
				return commands, most, nil
			}
		}
		return nil, most, nil
	}
}

// carryOut launches replacements, moves pods to where the command has places for them, and removes nodes. It says how
// many pods moved.
func (f *fleet) carryOut(ctx context.Context, command disruption.Command) (int, error) {
	goes := map[string]bool{}
	for _, candidate := range command.Candidates {
		goes[candidate.Node.Name] = true
	}
	moved := 0
	move := func(pods []*corev1.Pod, to string) error {
		for _, pod := range pods {
			if !goes[pod.Spec.NodeName] {
				continue
			}
			if err := f.cluster.UpdatePod(ctx, f.reader.move(pod, to)); err != nil {
				return fmt.Errorf("pod %s: %w", pod.Name, err)
			}
			moved++
		}
		return nil
	}
	if len(command.Replacements) > 0 {
		for _, replacement := range command.Results.NewNodeClaims {
			name, err := f.launch(ctx, replacement.NodePoolName, replacement.InstanceTypeOptions, command.Replacements[0])
			if err != nil {
				return moved, err
			}
			if err := move(replacement.Pods, name); err != nil {
				return moved, err
			}
		}
	}
	for _, node := range command.Results.ExistingNodes {
		if err := move(node.Pods, node.Name()); err != nil {
			return moved, err
		}
	}
	for name := range goes {
		if left := len(f.reader.byNode[name]); left > 0 {
			return moved, fmt.Errorf("%d pods of node %s have no place", left, name)
		}
		f.reader.remove(name)
		f.cluster.DeleteNode(name)
		f.cluster.DeleteNodeClaim(name)
	}
	return moved, nil
}

// launch makes the cheapest machine that a replacement may be.
func (f *fleet) launch(ctx context.Context, pool string, types []*cloudprovider.InstanceType, of *disruption.Replacement) (string, error) {
	var cheapest *cloudprovider.Offering
	var chosen *cloudprovider.InstanceType
	for _, instanceType := range types {
		for _, offering := range instanceType.Offerings.Available().Compatible(of.Requirements) {
			if cheapest == nil || offering.Price < cheapest.Price {
				cheapest, chosen = offering, instanceType
			}
		}
	}
	if cheapest == nil {
		return "", fmt.Errorf("a replacement of NodePool %s has no offering", pool)
	}
	f.launched++
	node, claim := machine(fmt.Sprintf("launched-%05d", f.launched), pool, chosen, cheapest)
	f.reader.add(node, claim)
	f.cluster.UpdateNodeClaim(claim)
	return node.Name, f.cluster.UpdateNode(ctx, node)
}

// price is what the machines cost as what they are.
func (f *fleet) price() (int64, error) {
	byName := map[string]*cloudprovider.InstanceType{}
	for _, instanceType := range f.instanceTypes {
		byName[instanceType.Name] = instanceType
	}
	sum := int64(0)
	for _, node := range f.reader.nodes {
		instanceType := byName[node.Labels[corev1.LabelInstanceTypeStable]]
		if instanceType == nil {
			return 0, fmt.Errorf("node %s is of a type that there is not", node.Name)
		}
		price, ok := instanceType.OfferingPrice(node.Labels[corev1.LabelTopologyZone], node.Labels[v1.CapacityTypeLabelKey])
		if !ok {
			return 0, fmt.Errorf("node %s is of an offering that there is not", node.Name)
		}
		sum += int64(price*nanoPerDollar + 0.5)
	}
	return sum, nil
}
