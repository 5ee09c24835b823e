//go:build !kubernetes_1_36

package main

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/dynamic-resource-allocation/structured"
)

// asScheduled is what kube-scheduler of this release tells its allocator.
func asScheduled(features structured.Features) structured.Features {
	return features
}

// newTaintRule is an empty rule in the version that the tracker of 1.37 watches.
func newTaintRule() runtime.Object {
	return &resourceapi.DeviceTaintRule{}
}

func trackerOptions(factory informers.SharedInformerFactory, consumableCapacity bool) tracker.Options {
	return tracker.Options{
		EnableDeviceTaintRules:   true,
		EnableConsumableCapacity: consumableCapacity,
		SliceInformer:            factory.Resource().V1().ResourceSlices(),
		TaintInformer:            factory.Resource().V1().DeviceTaintRules(),
	}
}
