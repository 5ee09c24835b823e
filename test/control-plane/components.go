package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/cli"
	// As upstream's main packages do, for the metrics of clients of the apiserver and of versions.
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwokcmd "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"

	"dovetail.test/control-plane/internal/cluster"
)

// components run one component each, with the arguments of upstream's own binary, until it ends or is told to stop.
var components = map[string]func(args []string) int{
	cluster.Subcommands[cluster.Etcd]:              runEtcd,
	cluster.Subcommands[cluster.APIServer]:         kubernetes(apiserver.NewAPIServerCommand),
	cluster.Subcommands[cluster.ControllerManager]: kubernetes(controllermanager.NewControllerManagerCommand),
	cluster.Subcommands[cluster.Scheduler]:         kubernetes(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	cluster.Subcommands[cluster.Kwok]:              runKwok,
}

func kubernetes(newCommand func() *cobra.Command) func([]string) int {
	return func(args []string) int {
		command := newCommand()
		command.SetArgs(args)
		return cli.Run(command)
	}
}

// runKwok does what kwok's own main does, after making room for two habits of kwok's: it parses os.Args by itself, and
// it takes the global flags into its own command, where Kubernetes' flag "version" would clash with cobra's.
func runKwok(args []string) int {
	os.Args = append([]string{"kwok"}, args...)
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ContinueOnError)

	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, logger := kwoklog.InitFlags(signals.SetupSignalContext(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		logger.Error("configuration", "err", err)
		return exitFailure
	}
	command := kwokcmd.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	if err := command.ExecuteContext(ctx); err != nil {
		logger.Error("kwok ended", "err", err)
		return exitFailure
	}
	return exitOK
}
