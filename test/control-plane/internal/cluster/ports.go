package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"
)

// The ports tried, unless the kernel hands them out itself.
const (
	lowestPort     = 20000
	leastPorts     = 1000
	portAttempts   = 1000
	kernelRangeKey = "/proc/sys/net/ipv4/ip_local_port_range"
)

// reservation keeps a loopback port for one component, from before its first start until it is closed.
//
// Its socket is bound and never listens. Bound alone, nobody else could take the port; then it permits sharing, and the
// component, which is told to share too, can bind beside it, as often as it is started. Letting go of the port first would
// leave it to whoever binds in the second until the component does.
type reservation struct{ socket, port int }

// reserve finds a free loopback port.
//
// It takes the port from below the range that the kernel uses for outgoing connections. Inside that range, clients that
// redial a killed component would sooner or later get its port as their own and connect to themselves; the component could
// then not be started again.
func reserve() (reservation, error) {
	if low, ok := kernelRangeStart(); ok && low-lowestPort >= leastPorts {
		for range portAttempts {
			reserved, err := bind(lowestPort + rand.IntN(low-lowestPort))
			if !errors.Is(err, unix.EADDRINUSE) {
				return reserved, err
			}
		}
	}
	return bind(0)
}

func bind(port int) (reservation, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return reservation{}, os.NewSyscallError("socket", err)
	}
	unix.CloseOnExec(socket)
	reserved := reservation{socket: socket}
	if reserved.port, err = bindAlone(socket, port); err != nil {
		reserved.close()
		return reservation{}, err
	}
	return reserved, nil
}

// bindAlone binds where nobody else has, not even one who would share, and only then permits sharing.
func bindAlone(socket, port int) (int, error) {
	if err := unix.Bind(socket, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	address, err := unix.Getsockname(socket)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	bound, ok := address.(*unix.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("bound to an address of type %T", address)
	}
	return bound.Port, nil
}

func (r reservation) close() { _ = unix.Close(r.socket) }

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
