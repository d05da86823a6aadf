package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
)

func TestRun(t *testing.T) {
	dir, err := os.MkdirTemp("", "v0-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	// A plugin that serves nothing at all.
	socket := filepath.Join(dir, "csi.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)

	const serves = "identity/the-endpoint-serves-csi-v0"
	for _, tc := range []struct {
		name, args string
		code       int
		says       string
	}{
		{"list", "--list", 0, "create/repeat-gives-the-same-answer [3, CreateVolume]"},
		{"help", "--help", 0, "-endpoint"},
		{"no endpoint", "", 2, "no endpoint is given"},
		{"unknown flag", "--none", 2, "not defined"},
		{"unknown argument", "more", 2, `unknown argument "more"`},
		{"bad parameters", "--endpoint /x --parameters a", 2, `"a" is not key=value`},
		{"bad size", "--endpoint /x --size 1X", 2, "size:"},
		{"secrets of no file", "--endpoint /x --secrets " + dir + "/none", 2, "no such file"},
		{"unknown check", "--endpoint /x --must-fail none", 2, `there is no check "none"`},
		{"plugin of nothing", "--endpoint " + socket, 1, "the endpoint does not speak csi.v0"},
		{"plugin that must fail", "--endpoint " + socket + " --must-fail " + serves, 0, "failed  " + serves},
		{"plugin that fails elsewhere", "--endpoint " + socket + " --must-fail list/bad-token-is-aborted", 1, "did not fail"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			if code := run(t.Context(), strings.Fields(tc.args), &out, &out); code != tc.code || !strings.Contains(out.String(), tc.says) {
				t.Errorf("exit code %d, want %d; output, want %q:\n%s", code, tc.code, tc.says, out.String())
			}
		})
	}
}
