package main

import (
	"os"

	_ "go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	sched "k8s.io/kubernetes/cmd/kube-scheduler/app"
	_ "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	_ "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat"
	_ "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	_ "sigs.k8s.io/kwok/pkg/config"
	_ "sigs.k8s.io/kwok/pkg/kwok/cmd"
	_ "sigs.k8s.io/kwok/pkg/log"
	_ "sigs.k8s.io/kwok/pkg/utils/signals"
)

func main() {
	switch os.Args[1] {
	case "a":
		cli.Run(apiserver.NewAPIServerCommand())
	case "b":
		cli.Run(kcm.NewControllerManagerCommand())
	case "c":
		cli.Run(sched.NewSchedulerCommand())
	}
}
