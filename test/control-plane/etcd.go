package main

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
)

// runEtcd runs a single member. It knows those of etcd's flags that "up" uses.
func runEtcd(args []string) int {
	config := embed.NewConfig()
	flags := flag.NewFlagSet("etcd", flag.ContinueOnError)
	flags.StringVar(&config.Name, "name", config.Name, "name of the member")
	flags.StringVar(&config.Dir, "data-dir", "", "`folder` of the data")
	flags.StringVar(&config.InitialCluster, "initial-cluster", "", "members, `NAME=URL`")
	flags.StringVar(&config.LogLevel, "log-level", config.LogLevel, "least `level` to log")
	flags.BoolVar(&config.UnsafeNoFsync, "unsafe-no-fsync", false, "never wait for the disk")
	flags.BoolVar(&config.SocketOpts.ReusePort, "socket-reuse-port", false, "share its port with others who do")
	flags.Int64Var(&config.QuotaBackendBytes, "quota-backend-bytes", 0, "largest size of the data")
	urlVar(flags, &config.ListenClientUrls, "listen-client-urls")
	urlVar(flags, &config.AdvertiseClientUrls, "advertise-client-urls")
	urlVar(flags, &config.ListenPeerUrls, "listen-peer-urls")
	urlVar(flags, &config.AdvertisePeerUrls, "initial-advertise-peer-urls")
	if err := flags.Parse(args); err != nil {
		return exitUsage
	}

	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	server, err := embed.StartEtcd(config)
	if err != nil {
		fmt.Fprintf(os.Stderr, "etcd: %v\n", err)
		return exitFailure
	}
	defer server.Close()
	select {
	case <-ctx.Done():
		return exitOK
	case err := <-server.Err():
		fmt.Fprintf(os.Stderr, "etcd: %v\n", err)
		return exitFailure
	}
}

func urlVar(flags *flag.FlagSet, target *[]url.URL, name string) {
	flags.Func(name, "`URL`", func(value string) error {
		parsed, err := url.Parse(value)
		if err == nil {
			*target = []url.URL{*parsed}
		}
		return err
	})
}
