package cluster

import (
	"fmt"
	"os"
	"path/filepath"
)

// The components, by the names that options and commands use.
const (
	Etcd              = "etcd"
	APIServer         = "apiserver"
	ControllerManager = "controller-manager"
	Scheduler         = "scheduler"
	Kwok              = "kwok"
)

// ComponentNames lists the components in the order in which they start; they stop in the opposite order.
var ComponentNames = []string{Etcd, APIServer, ControllerManager, Scheduler, Kwok}

// Subcommands gives each component the name of its subcommand, which is also that of its own binary elsewhere.
var Subcommands = map[string]string{
	Etcd:              "etcd",
	APIServer:         "kube-apiserver",
	ControllerManager: "kube-controller-manager",
	Scheduler:         "kube-scheduler",
	Kwok:              "kwok",
}

// ports are those of the components that listen.
type ports struct{ etcd, apiServer, controllerManager, scheduler int }

func (p ports) etcdURL() string   { return fmt.Sprintf("http://127.0.0.1:%d", p.etcd) }
func (p ports) serverURL() string { return fmt.Sprintf("https://127.0.0.1:%d", p.apiServer) }

// metricsURLs tells where the components that have metrics serve them. The apiserver wants a token for it.
func (p ports) metricsURLs() map[string]string {
	urls := map[string]string{}
	for name, port := range map[string]int{
		APIServer:         p.apiServer,
		ControllerManager: p.controllerManager,
		Scheduler:         p.scheduler,
	} {
		urls[name] = fmt.Sprintf("https://127.0.0.1:%d/metrics", port)
	}
	return urls
}

// openPaths are for everybody: nobody gave these components credentials to ask the apiserver who may read them.
const openPaths = "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics"

// nodeGrace is far longer than kwok's heartbeats are late. kwok begins its wait of 20 s before the next one anew with
// each change of the Node, and is late on a busy computer: after the default of 50 s nodes were given up that had been
// tainted and opened every ten seconds. kwok leaves pods unready that were made so for that.
const nodeGrace = "--node-monitor-grace-period=10m"

// arguments gives the arguments of each component. Only flags that upstream's own binaries know are used, so that they can
// stand in for the subcommands.
func arguments(l layout, p ports, f features) map[string][]string {
	admin := l.kubeconfig(adminFile)
	return map[string][]string{
		Etcd: {
			"--name=default",
			"--data-dir=" + l.etcdData(),
			"--listen-client-urls=" + p.etcdURL(),
			"--advertise-client-urls=" + p.etcdURL(),
			// A single member needs no peers; port 0 keeps it from claiming the well-known one.
			"--listen-peer-urls=http://127.0.0.1:0",
			"--initial-advertise-peer-urls=http://127.0.0.1:0",
			"--initial-cluster=default=http://127.0.0.1:0",
			"--socket-reuse-port", // its port is also held by the reservation
			// The page cache survives a killed process; only a crash of the host would lose data.
			"--unsafe-no-fsync",
			"--quota-backend-bytes=4294967296",
			"--log-level=error",
		},
		APIServer: withFeatures(f, []string{
			"--etcd-servers=" + p.etcdURL(),
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", p.apiServer),
			"--permit-port-sharing",
			"--cert-dir=" + l.certs(APIServer),
			"--service-account-key-file=" + l.serviceAccountKey(),
			"--service-account-signing-key-file=" + l.serviceAccountKey(),
			"--service-account-issuer=https://kubernetes.default.svc",
			"--token-auth-file=" + l.tokens(),
			"--authorization-mode=Node,RBAC",
			"--service-cluster-ip-range=10.96.0.0/16",
			"--allow-privileged",
			// Pods then need neither a ServiceAccount nor a token volume.
			"--disable-admission-plugins=ServiceAccount",
			// Tests measure the programs under test, not the server's protection from them.
			"--enable-priority-and-fairness=false",
			"--max-requests-inflight=0",
			"--max-mutating-requests-inflight=0",
		}),
		ControllerManager: withFeatures(features{gates: f.gates}, []string{
			"--kubeconfig=" + admin,
			"--leader-elect=false",
			"--service-account-private-key-file=" + l.serviceAccountKey(),
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", p.controllerManager),
			"--permit-port-sharing",
			"--cert-dir=" + l.certs(ControllerManager),
			openPaths,
			"--kube-api-qps=5000",
			"--kube-api-burst=10000",
			"--concurrent-resourceclaim-syncs=10",
			nodeGrace,
		}),
		Scheduler: withFeatures(features{gates: f.gates}, []string{
			"--config=" + l.schedulerConfig(),
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", p.scheduler),
			"--permit-port-sharing",
			"--cert-dir=" + l.certs(Scheduler),
			openPaths,
		}),
		Kwok: {
			"--kubeconfig=" + admin,
			"--config=" + l.kwokConfig(),
			"-v", "WARN", // INFO writes 1.6 KB a pod
		},
	}
}

func withFeatures(f features, args []string) []string {
	if f.gates != "" {
		args = append(args, "--feature-gates="+f.gates)
	}
	if f.runtimeConfig != "" {
		args = append(args, "--runtime-config="+f.runtimeConfig)
	}
	return args
}

// commandLine gives the program and the arguments that run a component: its own binary if binaryDir has one, else this
// program's subcommand.
func commandLine(self, binaryDir, name string, args []string) []string {
	if binaryDir != "" {
		binary := filepath.Join(binaryDir, Subcommands[name])
		if info, err := os.Stat(binary); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return append([]string{binary}, args...)
		}
	}
	return append([]string{self, Subcommands[name]}, args...)
}
