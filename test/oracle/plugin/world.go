package main

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// Gates that questions turn on and off one by one: the plugins get them as an argument. The rest of the scheduler reads
// them from a place that is global to the process, where they stay on.
var gates = []string{
	"DRAConsumableCapacity",
	"DRAExtendedResource",
	"DRANodeAllocatableResources",
	"DRAPartitionableDevices",
	"DRAPrioritizedList",
	"DRADeviceTaints",
}

func enableGates() error {
	return utilfeature.DefaultMutableFeatureGate.Set("DRANodeAllocatableResources=true")
}

func features(names []string) feature.Features {
	result := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	value := reflect.ValueOf(&result).Elem()
	for _, gate := range gates {
		value.FieldByName("Enable" + gate).SetBool(false)
	}
	for _, name := range names {
		if field := value.FieldByName("Enable" + name); field.IsValid() {
			field.SetBool(true)
		}
	}
	return result
}

// world is what plugins see of a cluster: a client without a server, caches that follow it, and a snapshot of the nodes.
type world struct {
	client  *fake.Clientset
	plugins []fwk.Plugin
	nodes   map[string]fwk.NodeInfo
}

func newWorld(ctx context.Context, q *question) (*world, error) {
	var objects []runtime.Object
	for _, object := range q.Classes {
		objects = append(objects, object.DeepCopy())
	}
	for _, object := range q.Slices {
		objects = append(objects, object.DeepCopy())
	}
	for _, object := range q.Claims {
		claim := object.DeepCopy()
		claim.ResourceVersion = "1"
		objects = append(objects, claim)
	}
	for _, object := range append([]*v1.Pod{q.Pod}, q.Running...) {
		objects = append(objects, object.DeepCopy())
	}
	client := fake.NewClientset(objects...)
	versions := 1
	client.PrependReactor("*", "resourceclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		versions++
		completeClaim(action, versions)
		return false, nil, nil
	})

	factory := informers.NewSharedInformerFactory(client, 0)
	logger := klog.FromContext(ctx)
	claims := assumecache.NewAssumeCache(logger, factory.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
	slices, err := tracker.StartTracker(ctx, tracker.Options{
		SliceInformer: factory.Resource().V1().ResourceSlices(),
		KubeClient:    client,
	})
	if err != nil {
		return nil, fmt.Errorf("slices: %w", err)
	}
	manager := dynamicresources.NewDRAManager(ctx, claims, slices, factory)
	// The scheduler, not the manager, has it hear of classes.
	resolver, ok := manager.DeviceClassResolver().(toolscache.ResourceEventHandler)
	if !ok {
		return nil, fmt.Errorf("%T does not hear of classes", manager.DeviceClassResolver())
	}
	resolving, err := factory.Resource().V1().DeviceClasses().Informer().AddEventHandler(resolver)
	if err != nil {
		return nil, fmt.Errorf("classes: %w", err)
	}
	snapshot := cache.NewSnapshot(q.Running, q.Nodes)
	handle, err := frameworkruntime.NewFramework(ctx, nil, nil,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSharedDRAManager(manager),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
	)
	if err != nil {
		return nil, fmt.Errorf("framework: %w", err)
	}
	enabled := features(q.Features)
	fit, err := noderesources.NewFit(ctx, &config.NodeResourcesFitArgs{ScoringStrategy: &config.ScoringStrategy{
		Type:      config.LeastAllocated,
		Resources: []config.ResourceSpec{{Name: "cpu", Weight: 1}},
	}}, handle, enabled)
	if err != nil {
		return nil, fmt.Errorf("NodeResourcesFit: %w", err)
	}
	devices, err := dynamicresources.New(ctx, &config.DynamicResourcesArgs{}, handle, enabled)
	if err != nil {
		return nil, fmt.Errorf("DynamicResources: %w", err)
	}
	factory.Start(ctx.Done())
	if err := waitUntilSeen(ctx, q, manager, factory, resolving.HasSynced); err != nil {
		return nil, err
	}

	nodes := map[string]fwk.NodeInfo{}
	list, err := snapshot.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	for _, info := range list {
		nodes[info.Node().Name] = info
	}
	return &world{client: client, plugins: []fwk.Plugin{fit, devices}, nodes: nodes}, nil
}

// waitUntilSeen waits for the caches, and for what follows them in goroutines of its own.
func waitUntilSeen(ctx context.Context, q *question, manager fwk.SharedDRAManager, factory informers.SharedInformerFactory,
	others ...toolscache.InformerSynced) error {
	resources := factory.Resource().V1()
	synced := append(others, resources.DeviceClasses().Informer().HasSynced, resources.ResourceSlices().Informer().HasSynced,
		resources.ResourceClaims().Informer().HasSynced)
	return wait.PollUntilContextCancel(ctx, 100*time.Microsecond, true, func(context.Context) (bool, error) {
		for _, isSynced := range synced {
			if !isSynced() {
				return false, nil
			}
		}
		// These do not tell when they are done.
		claims, err := manager.ResourceClaims().List()
		if err != nil || len(claims) < len(q.Claims) {
			return false, err
		}
		slices, err := manager.ResourceSlices().ListWithDeviceTaintRules()
		if err != nil || len(slices) < len(q.Slices) {
			return false, err
		}
		state, err := manager.ResourceClaims().GatherAllocatedState()
		return err == nil && len(state.AllocatedDevices)+len(state.AllocatedSharedDeviceIDs) >= allocated(q.Claims), err
	})
}

// allocated counts the devices and shares that claims hold.
func allocated(claims []*resourceapi.ResourceClaim) int {
	held := sets.New[string]()
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			share := ""
			if result.ShareID != nil {
				share = string(*result.ShareID)
			}
			if result.AdminAccess == nil || !*result.AdminAccess {
				held.Insert(strings.Join([]string{result.Driver, result.Pool, result.Device, share}, "/"))
			}
		}
	}
	return held.Len()
}

// completeClaim does to a claim that is written what a server does: a name for generateName, and a version.
func completeClaim(action clienttesting.Action, version int) {
	writing, ok := action.(interface{ GetObject() runtime.Object })
	if !ok {
		return
	}
	claim, ok := writing.GetObject().(*resourceapi.ResourceClaim)
	if !ok {
		return
	}
	claim.ResourceVersion = strconv.Itoa(version)
	if claim.Name == "" {
		claim.Name = claim.GenerateName + "generated"
		claim.UID = types.UID("uid-of-" + claim.Name)
	}
}
