// Command vmctl starts and talks to the guests of hack/vm; people call the scripts there.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
)

// Exit statuses beside those of the guest's command.
const (
	exitUsage   = 2
	exitTimeout = 124
	exitDied    = 125
)

// failure is an error with an exit status of its own.
type failure struct {
	status int
	text   string
}

func (f *failure) Error() string { return f.text }

func usage(format string, args ...any) error {
	return &failure{exitUsage, fmt.Sprintf(format, args...)}
}

// A guest's qemu is to die with the thread that started it: that must be the main one.
func init() { runtime.LockOSThread() }

// keepFiles keeps what our caller has open to ourselves: a guest may outlive us, and whoever waits for the end of a pipe
// would wait for the guest.
func keepFiles() {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

func main() {
	keepFiles()
	var status int
	var err error
	switch command := append(os.Args, "")[1]; command {
	case "run":
		status, err = run(os.Args[2:])
	case "supervise":
		status, err = supervise(os.Args[2:])
	case "exec":
		status, err = execIn(os.Args[2:])
	case "stop":
		status, err = stop(os.Args[2:])
	default:
		err = usage("unknown command %q", command)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		status = 1
		if f := (*failure)(nil); errors.As(err, &f) {
			status = f.status
		}
	}
	os.Exit(status)
}
