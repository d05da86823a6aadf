// Package machine is what tests on a real kernel share: the tools of the
// machine, a pool of their own on a file, and waiting for what the kernel does
// soon. They run as root in a virtual machine; what is missing there is a
// failure, never a skip.
package machine

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// patience is how long a tool, or what the kernel or a daemon does soon, may
// take on an emulated processor.
const patience = 90 * time.Second

// Output runs a tool and returns what it said. The error has its complaint.
func Output(tool string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", tool, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// Run runs a tool.
func Run(tool string, args ...string) error {
	_, err := Output(tool, args...)
	return err
}

// Sh runs a tool that must succeed and returns what it said.
func Sh(t testing.TB, tool string, args ...string) string {
	t.Helper()
	out, err := Output(tool, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Eventually waits for what the kernel or a daemon does soon.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("%s does not come about", what)
}

// Silence drops what is sent to the NFS and iSCSI ports of an address of this machine, as a
// dead server does, until the returned function is called or the test ends.
func Silence(t testing.TB, address string) (speak func()) {
	t.Helper()
	family := "ip"
	if strings.Contains(address, ":") {
		family = "ip6"
	}
	for _, c := range []string{
		"add table inet tarnsilence",
		"add chain inet tarnsilence in { type filter hook input priority 0 ; }",
		"add rule inet tarnsilence in " + family + " daddr " + address + " tcp dport { 2049, 3260 } drop",
	} {
		Sh(t, "nft", c)
	}
	silent := true
	speak = func() {
		if silent {
			silent = false
			Sh(t, "nft", "delete table inet tarnsilence")
		}
	}
	t.Cleanup(speak)
	return speak
}
