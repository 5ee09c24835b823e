package cluster

import "syscall"

// childAttributes put a child into its own process group, so that Ctrl-C reaches it only through the orderly stop, and have
// the kernel kill it when this process dies in whatever way.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
