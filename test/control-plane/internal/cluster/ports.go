package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
)

// The ports tried, unless the kernel hands them out itself.
const (
	lowestPort     = 20000
	leastPorts     = 1000
	portAttempts   = 1000
	kernelRangeKey = "/proc/sys/net/ipv4/ip_local_port_range"
)

// reservePort finds a free loopback port and keeps it until the listener is closed.
//
// It takes the port from below the range that the kernel uses for outgoing connections. Inside that range, clients that
// redial a killed component would sooner or later get its port as their own and connect to themselves; the component could
// then not be started again.
func reservePort() (net.Listener, error) {
	if low, ok := kernelRangeStart(); ok && low-lowestPort >= leastPorts {
		for range portAttempts {
			if listener, err := listenOn(lowestPort + rand.IntN(low-lowestPort)); err == nil {
				return listener, nil
			}
		}
	}
	return listenOn(0)
}

func listenOn(port int) (net.Listener, error) {
	return net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
}

func portOf(listener net.Listener) int {
	return listener.Addr().(*net.TCPAddr).Port
}

func kernelRangeStart() (int, bool) {
	text, err := os.ReadFile(kernelRangeKey)
	if err != nil {
		return 0, false
	}
	var low, high int
	if _, err := fmt.Sscan(string(text), &low, &high); err != nil {
		return 0, false
	}
	return low, true
}
