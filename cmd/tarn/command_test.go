package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/check"
	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

func TestMainStaysSmall(t *testing.T) {
	raw, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(raw, []byte("\n")); n > 60 {
		t.Errorf("main.go has %d lines, of at most 60", n)
	}
}

func TestC53BothVersionsTellTheRecordedName(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{"io.github.tarn-csi": nil, "org.example.csi": {"--driver-name=org.example.csi"}} {
		p := start(t, args...)
		v1, err := csi.NewIdentityClient(p.conn).GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
		if err != nil || v1.GetName() != want || v1.GetVendorVersion() == "" {
			t.Errorf("csi.v1: %v, %v", v1, err)
		}
		v0, err := csiv0.NewIdentityClient(p.conn).GetPluginInfo(t.Context(), &csiv0.GetPluginInfoRequest{})
		if err != nil || v0.GetName() != want || v0.GetVendorVersion() == "" {
			t.Errorf("csi.v0: %v, %v", v0, err)
		}
		id, err := csiv0.NewNodeClient(p.conn).NodeGetId(t.Context(), &csiv0.NodeGetIdRequest{})
		if err != nil || id.GetNodeId() != "worker-1@192.0.2.21" {
			t.Errorf("node id: %v, %v", id, err)
		}
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	master := strings.Repeat("0f", chap.KeySize)
	key, other := filepath.Join(dir, "master.key"), filepath.Join(dir, "other.key")
	if err := os.WriteFile(key, []byte(master), 0o600); err != nil {
		t.Fatal(err)
	}
	parsed, err := chap.ParseKey(master)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   string
		status int
		out    string // a part of stdout where the status is 0, else of stderr
	}{
		{"version", 0, "tarn dev serving csi.v0 (0.2.0) and csi.v1\n"},
		{"help", 0, "serve"},
		{"help", 0, "check"},
		{"serve --help", 0, "--endpoint"},
		{"serve", 1, "tarn: no pool is configured"},
		{"serve more", 1, "tarn: "},
		{"serve --speed=high", 1, "tarn: unknown flag: --speed"},
		{"serve --config=/nonexistent.yaml", 1, "tarn: read configuration"},
		{"serve --mode=both", 1, "all, controller or node"},
		{"serve --mode=node --node-address=192.0.2.1 --host-root=" + dir, 1, "tarn: --host-root " + dir + " is no root of a host"},
		{"check --host-root=" + dir + " --mode=node", 1, "tarn: --host-root " + dir + " is no root of a host"},
		{"check", 1, "tarn: no pool is configured"},
		{"volumes --pv-yaml --json", 1, "none of the others can be"},
		{"volumes --storage-class=fast --pool=t=t/csi --address=192.0.2.1", 1, "--storage-class belongs to --pv-yaml"},
		{"volumes --pv-yaml --storage-class=smb=fast --pool=t=t/csi --address=192.0.2.1", 1, "must be one of nfs, iscsi,"},
		{"launch", 1, "tarn: unknown command"},
		{"key --master-key-file=" + key + " Worker-1", 0, chap.NodeKey(parsed, "worker-1").Hex() + "\n"},
		{"key --master-key-file=" + key + " worker_1", 1, "RFC 1123"},
		{"key --master-key-file=" + key, 1, "--create"},
		{"key --master-key-file=" + other + " worker-1", 1, "no such file"},
		{"key --master-key-file=" + other + " --create", 0, "master key: " + other + "\n"},
		{"key --master-key-file=" + key + " --create", 0, "master key: " + key + "\n"},
	} {
		cmd := command(t, strings.Fields(c.args)...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		text := stdout.String()
		if c.status != 0 {
			text = stderr.String()
		}
		if cmd.ProcessState.ExitCode() != c.status || !strings.Contains(text, c.out) {
			t.Errorf("tarn %s: %v\n%s%s", c.args, err, stdout.String(), stderr.String())
		}
		if strings.Contains(stdout.String()+stderr.String(), master) {
			t.Errorf("tarn %s shows the master key", c.args)
		}
	}
	if now, err := os.ReadFile(key); err != nil || string(now) != master {
		t.Errorf("the master key was replaced: %v", err)
	}
	if made, err := chap.ReadKey(other); err != nil || made.Hex() == master {
		t.Errorf("no new key was made: %v", err)
	}
}

// What is found on this machine is its own business; how it is told is not.
func TestCheckTellsItsFindings(t *testing.T) {
	t.Parallel()
	args := []string{"check", "--mode=node", "--protocols=nfs", "--node-name=worker-1", "--state-dir=" + t.TempDir()}
	raw, _ := command(t, append(args, "--json")...).Output()
	var list []check.Finding
	if err := json.Unmarshal(raw, &list); err != nil || len(list) < 5 {
		t.Fatalf("%v: %s", err, raw)
	}
	status := 0
	for _, f := range list {
		if f.Name == "" || f.Found == "" || (f.Advice == "") != (f.Status == check.OK) {
			t.Errorf("%+v", f)
		}
		if f.Status == check.Fail {
			status = 1
		}
		if strings.Contains(f.Name, "iscsi") || strings.HasPrefix(f.Name, "pool") {
			t.Errorf("%s is not needed by a node over NFS", f.Name)
		}
	}
	table := command(t, args...)
	text, _ := table.Output()
	if n := bytes.Count(text, []byte("\n")); n != len(list) {
		t.Errorf("%d lines for %d findings\n%s", n, len(list), text)
	}
	if table.ProcessState.ExitCode() != status {
		t.Errorf("it ended with %v", table.ProcessState)
	}
}
