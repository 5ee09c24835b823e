//go:build !linux

package cluster

import "syscall"

// childAttributes put a child into its own process group, so that Ctrl-C reaches it only through the orderly stop. Only
// Linux can be asked to kill it when this process is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
