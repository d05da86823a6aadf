package config

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// given is a command line with every setting, and what comes out of it.
var given = map[string]struct{ args, field string }{
	"endpoint": {"/run/x.sock", "Endpoint"}, "mode": {"node", "Mode"}, "driver-name": {"org.example.csi", "DriverName"},
	"protocols": {"iscsi", "Protocols"}, "node-name": {"w", "NodeName"}, "node-address": {"192.0.2.21", "NodeAddresses"},
	"max-volumes-per-node": {"40", "MaxVolumesPerNode"}, "topology": {"example.com/zone=z1", "Topology"},
	"node-network": {"192.0.2.0/24", "NodeNetworks"}, "iqn-prefix": {"iqn.2000-01.org.example", "IQNPrefix"}, "instance": {"i", "Instance"},
	"master-key-file": {"/m", "MasterKeyFile"}, "node-key-file": {"/n", "NodeKeyFile"}, "host-root": {"/host", "HostRoot"},
	"state-dir": {"/s", "StateDir"}, "run-dir": {"/r", "RunDir"}, "operation-timeout": {"3m0s", "OperationTimeout"},
	"reconcile-interval":       {"5m0s", "ReconcileInterval"},
	"iscsi-outage":             {"10m0s", "ISCSIOutage"},
	"http-address":             {"127.0.0.1:9805", "HTTPAddress"},
	"otlp-endpoint":            {"http://192.0.2.1:4317", "OTLPEndpoint"},
	"delete-foreign-snapshots": {"false", "DeleteForeignSnapshots"},
	"events":                   {"true", "Events"},
	"controller-endpoint":      {"/run/c.sock", "ControllerEndpoint"}, "ephemeral-pool": {"tank", "Ephemeral.Pool"},
	"ephemeral-default-bytes": {"2097152", "Ephemeral.DefaultBytes"}, "ephemeral-max-bytes": {"4194304", "Ephemeral.MaxBytes"},
	"ephemeral-max-volumes": {"3", "Ephemeral.MaxVolumes"},
	"log-level":             {"debug", "LogLevel"}, "log-format": {"json", "LogFormat"}, "address": {"192.0.2.10", "PortalHints"},
}

// other is a file in which every one of these settings has another value.
const other = `
endpoint: /run/file.sock
mode: controller
driverName: com.example.csi
protocols: [nfs]
nodeName: file
nodeAddresses: [192.0.2.99]
nodeNetworks: [198.51.100.0/24]
maxVolumesPerNode: 7
topology: {example.com/zone: file}
iqnPrefix: iqn.1999-01.com.example
instance: file
masterKeyFile: /file/m
nodeKeyFile: /file/n
hostRoot: /file
stateDir: /file/s
runDir: /file/r
httpAddress: 192.0.2.10:9805
otlpEndpoint: https://collector.example:4317
deleteForeignSnapshots: true
events: false
operationTimeout: 9m
reconcileInterval: 8m
iscsiOutage: 7m
logLevel: error
logFormat: text
controllerEndpoint: /run/other.sock
ephemeral: {pool: fast, defaultBytes: 1048576, maxBytes: 1073741824, maxVolumes: 9}
portalHints: [192.0.2.98]
`

func TestEveryFlagWinsOverTheFile(t *testing.T) {
	var args []string
	for name, v := range given {
		args = append(args, "--"+name+"="+v.args)
	}
	c, err := load(t, append(args, "--config="+file(t, other))...)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range given {
		got := reflect.ValueOf(c)
		for field := range strings.SplitSeq(v.field, ".") {
			got = got.FieldByName(field)
		}
		text := strings.Trim(strings.TrimSpace(formatted(got)), "[]")
		if text != v.args {
			t.Errorf("--%s=%s gives %s", name, v.args, text)
		}
	}

	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	Bind(set)
	set.VisitAll(func(f *pflag.Flag) {
		if _, ok := given[f.Name]; !ok && f.Name != "config" && f.Name != "pool" && f.Name != "chap" {
			t.Errorf("--%s is not tested here", f.Name)
		}
	})
}

func formatted(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.String()
	case []string:
		return strings.Join(x, ",")
	case map[string]string:
		var pairs []string
		for _, k := range slices.Sorted(maps.Keys(x)) {
			pairs = append(pairs, k+"="+x[k])
		}
		return strings.Join(pairs, ",")
	case bool:
		return strconv.FormatBool(x)
	case int64:
		return strconv.FormatInt(x, 10)
	}
	return v.String()
}

func TestAFlagThatIsNotGivenLeavesTheFile(t *testing.T) {
	c, err := load(t, "--config="+file(t, other), "--mode=node")
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Endpoint: "/run/file.sock", Mode: Node, DriverName: "com.example.csi", Protocols: []string{"nfs"}, NodeName: "file",
		NodeAddresses: []string{"192.0.2.99"}, NodeNetworks: []string{"198.51.100.0/24"}, PortalHints: []string{"192.0.2.98"},
		MaxVolumesPerNode: 7, Topology: map[string]string{"example.com/zone": "file"},
		IQNPrefix: "iqn.1999-01.com.example", Instance: "file", MasterKeyFile: "/file/m", NodeKeyFile: "/file/n", HostRoot: "/file",
		StateDir: "/file/s", RunDir: "/file/r", DeleteForeignSnapshots: true, OperationTimeout: 9 * time.Minute, ReconcileInterval: 8 * time.Minute, ISCSIOutage: 7 * time.Minute,
		ControllerEndpoint: "/run/other.sock",
		Ephemeral:          Ephemeral{Pool: "fast", DefaultBytes: 1 << 20, MaxBytes: 1 << 30, MaxVolumes: 9},
		LogLevel:           "error", LogFormat: "text", HTTPAddress: "192.0.2.10:9805", OTLPEndpoint: "https://collector.example:4317",
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
}

func TestPoolsByFlags(t *testing.T) {
	c, err := load(t, "--pool=tank=tank/csi", "--pool=fast=nvme/a=b", "--address=192.0.2.10,192.0.2.11", "--chap=none")
	if err == nil {
		t.Errorf("a parent with '=': %+v", c.Pools)
	}
	c, err = load(t, "--pool=tank=tank/csi,fast=nvme/csi", "--address=192.0.2.10", "--address=192.0.2.11", "--chap=none")
	if err != nil {
		t.Fatal(err)
	}
	addresses := []string{"192.0.2.10", "192.0.2.11"}
	want := []Pool{
		{Name: "tank", Parent: "tank/csi", Addresses: addresses, ISCSIPort: 3260, CHAP: "none"},
		{Name: "fast", Parent: "nvme/csi", Addresses: addresses, ISCSIPort: 3260, CHAP: "none"},
	}
	if diff := cmp.Diff(want, c.Pools); diff != "" {
		t.Error(diff)
	}
}

func TestFlagsThatWouldBeIgnoredAreRefused(t *testing.T) {
	pools := file(t, "pools:\n- {name: tank, parent: tank/csi, addresses: [192.0.2.10]}\n")
	for _, c := range []struct {
		args []string
		part string
	}{
		{[]string{"--config=" + pools, "--pool=a=a/b"}, "use one of them"},
		{[]string{"--config=" + pools, "--address=192.0.2.1"}, "--address belongs to --pool"},
		{[]string{"--config=" + pools, "--chap=none"}, "--chap belongs to --pool"},
		{[]string{"--pool=tank", "--address=192.0.2.1"}, "NAME=PARENT"},
		{[]string{"--pool=tank=tank/csi"}, "--address"},
		{nil, "--pool"},
	} {
		if _, err := load(t, c.args...); fault.Kind(err) != fault.Invalid || !strings.Contains(err.Error(), c.part) {
			t.Errorf("%q: %v", c.args, err)
		}
	}
	if _, err := load(t, "--config="+pools); err != nil {
		t.Error(err)
	}
}

func TestCSIEndpointWinsOverTheFileAndNotOverTheFlag(t *testing.T) {
	path := file(t, "mode: node\nendpoint: /run/file.sock\n")
	t.Setenv("CSI_ENDPOINT", "unix:///run/variable.sock")
	for want, args := range map[string][]string{
		"unix:///run/variable.sock": {"--config=" + path},
		"/run/flag.sock":            {"--config=" + path, "--endpoint=/run/flag.sock"},
	} {
		if c, err := load(t, args...); err != nil || c.Endpoint != want {
			t.Errorf("%q: %s, %v", args, c.Endpoint, err)
		}
	}
	t.Setenv("CSI_ENDPOINT", "tcp://192.0.2.1:1")
	if _, err := load(t, "--config="+path); fault.Kind(err) != fault.Invalid || !strings.Contains(err.Error(), "tcp://192.0.2.1:1") {
		t.Errorf("an endpoint that is no socket: %v", err)
	}
	t.Setenv("CSI_ENDPOINT", "")
	if c, err := load(t, "--config="+path); err != nil || c.Endpoint != "/run/file.sock" {
		t.Errorf("an empty variable: %s, %v", c.Endpoint, err)
	}
}

// The specification keeps the prefix CSI_ for itself.
func TestNoVariableOfOurOwnBeginsWithCSI(t *testing.T) {
	name := regexp.MustCompile(`"(CSI_[A-Z0-9_]*)"`)
	for _, dir := range []string{"../../cmd", "../../pkg"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range name.FindAllSubmatch(raw, -1) {
				if string(m[1]) != "CSI_ENDPOINT" {
					t.Errorf("%s has %s", path, m[0])
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
