package docs

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tarn-csi/tarn/pkg/config"
)

// directives are what the units may say, by section: names of systemd.unit(5),
// systemd.service(5) and systemd.exec(5). systemd ignores a name it does not know.
var directives = map[string]string{
	"Unit": "Description Documentation After Wants StartLimitIntervalSec",
	"Service": "Type EnvironmentFile ExecStart Restart RestartSec KillMode TimeoutStopSec OOMScoreAdjust " +
		"RuntimeDirectory RuntimeDirectoryMode RuntimeDirectoryPreserve StateDirectory StateDirectoryMode " +
		"NoNewPrivileges LockPersonality MemoryDenyWriteExecute RestrictRealtime RestrictNamespaces RestrictSUIDSGID RestrictAddressFamilies " +
		"SystemCallArchitectures SystemCallFilter SystemCallErrorNumber CapabilityBoundingSet LimitCORE " +
		"ProtectSystem ProtectHome PrivateTmp PrivateDevices ProtectKernelTunables ProtectKernelModules ProtectKernelLogs " +
		"ProtectControlGroups ProtectClock ProtectHostname ProtectProc",
	"Install": "WantedBy",
}

// ownMounts give a service a mount namespace (exec_needs_mount_namespace in
// systemd's core/execute.c): what tarn mounts there nobody else would see.
var ownMounts = []string{"ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateMounts", "ProtectKernelTunables",
	"ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups", "ProtectClock", "ProtectProc", "ProcSubset", "ReadWritePaths",
	"ReadOnlyPaths", "InaccessiblePaths", "ExecPaths", "NoExecPaths", "BindPaths", "BindReadOnlyPaths", "TemporaryFileSystem",
	"RootDirectory", "RootImage", "DynamicUser", "MountAPIVFS", "PrivateIPC", "LoadCredential"}

// A setting is one line of a unit.
type setting struct{ section, name, value string }

func unit(t *testing.T, name string) (list []setting) {
	t.Helper()
	section := ""
	for line := range strings.Lines(read(t, "deploy/systemd/"+name)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.HasPrefix(line, "[") {
			section = strings.Trim(line, "[]")
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasSuffix(line, "\\") {
			t.Errorf("%s: %q cannot be read", name, line)
		}
		list = append(list, setting{section, key, value})
	}
	return list
}

var units = []string{"tarn.service", "tarn-sidecar@.service"}

func TestUnitsSayOnlyWhatSystemdKnows(t *testing.T) {
	for _, name := range units {
		for _, s := range unit(t, name) {
			if !slices.Contains(strings.Fields(directives[s.section]), s.name) {
				t.Errorf("%s: [%s] has no %s", name, s.section, s.name)
			}
		}
	}
}

func TestTheUnitKeepsTheHostsMounts(t *testing.T) {
	for _, s := range unit(t, "tarn.service") {
		if slices.Contains(ownMounts, s.name) {
			t.Errorf("%s would hide tarn's mounts from everybody else", s.name)
		}
	}
}

// The command line of the unit, with the sample environment and the sample
// configuration in the places where the unit expects them, is one that tarn takes.
func TestTheUnitStartsTarnWithTheSamples(t *testing.T) {
	var args []string
	for _, s := range unit(t, "tarn.service") {
		if s.name == "ExecStart" {
			args = strings.Fields(s.value)
		}
	}
	_, given, ok := strings.Cut(read(t, "deploy/systemd/tarn.env"), "\nTARN_ARGS=")
	if !ok || len(args) != 4 || args[0] != "/usr/local/bin/tarn" || args[1] != "serve" || args[3] != "$TARN_ARGS" {
		t.Fatalf("the unit starts %q, the environment has %q", args, given)
	}
	args = append([]string{strings.Replace(args[2], "/etc/tarn/tarn.yaml", root+"/deploy/samples/appliance.yaml", 1)}, strings.Fields(given)...)
	set := pflag.NewFlagSet("tarn", pflag.ContinueOnError)
	flags := config.Bind(set)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	c, err := flags.Load()
	if err != nil {
		t.Fatal(err)
	}
	// The directories of the unit are those of the configuration, and of the sidecars.
	if c.Endpoint != "unix:///run/tarn/csi.sock" || c.RunDir != "/run/tarn" || c.StateDir != "/var/lib/tarn" || c.Mode != config.Controller {
		t.Errorf("it is %s in %s and %s, mode %s", c.Endpoint, c.RunDir, c.StateDir, c.Mode)
	}
}

// The sidecars' environments and the cluster's credentials are what the units
// read, and what the page installs.
func TestTheFilesOfTheUnitsAreThere(t *testing.T) {
	page := read(t, "deploy/systemd/README.md")
	for _, sidecar := range []string{"csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter"} {
		if _, given, ok := strings.Cut(read(t, "deploy/systemd/"+sidecar+".env"), "\nSIDECAR_ARGS="); !ok || strings.Contains(strings.TrimSpace(given), "\n") {
			t.Errorf("%s.env has no line of SIDECAR_ARGS, or more than one", sidecar)
		}
		if !strings.Contains(page, "tarn-sidecar@"+sidecar) {
			t.Errorf("the page does not start %s", sidecar)
		}
	}
	for _, word := range strings.Fields(read(t, "deploy/systemd/kubeconfig")) {
		if file, ok := strings.CutPrefix(word, "/etc/tarn/cluster-"); ok && !strings.Contains(page, "> cluster-"+file+"\n") {
			t.Errorf("nobody makes %s", word)
		}
	}
}
