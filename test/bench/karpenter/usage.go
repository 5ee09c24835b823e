package main

import (
	"syscall"
	"time"
)

// What this process used up to a moment, its garbage collector included.
type used struct {
	cpu     int64
	wall    time.Time
	peakKiB int64
}

func usage() used {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // Only arguments can be wrong.
	}
	return used{cpu: usage.Utime.Nano() + usage.Stime.Nano(), wall: time.Now(), peakKiB: usage.Maxrss}
}
