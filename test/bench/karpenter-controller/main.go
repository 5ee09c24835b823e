// Karpenter's controller on machines that are not real, to measure against: its operator, its controllers and its own
// provider for kwok, put together as its documentation of these packages says. Options come from flags and environment,
// the cluster from KUBECONFIG.
package main

import (
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/metrics"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
)

func main() {
	ctx, op := operator.NewOperator()
	types, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		panic(err)
	}
	plain := metrics.Decorate(kwok.NewCloudProvider(ctx, op.GetClient(), types))
	decorated := overlay.Decorate(plain, op.GetClient(), op.InstanceTypeStore)
	cluster := state.NewCluster(op.Clock, op.GetClient(), decorated)
	op.WithControllers(ctx, controllers.NewControllers(
		ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder, decorated, plain, cluster, op.InstanceTypeStore,
	)...).Start(ctx)
}
