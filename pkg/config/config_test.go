package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/fault"
)

// load reads a command line, with the environment as it is.
func load(t *testing.T, args ...string) (Config, error) {
	t.Helper()
	set := pflag.NewFlagSet("tarn", pflag.ContinueOnError)
	flags := Bind(set)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return flags.Load()
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tarn.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// valid is a configuration of mode all, before Complete.
func valid() Config {
	c := Default()
	c.NodeName = "worker-1"
	c.Pools = []Pool{{Name: "tank", Parent: "tank/csi", Addresses: []string{"192.0.2.10"}}}
	return c
}

// A default that changes leaves every volume without an owner (C53).
func TestC53TheDefaultDriverNameIsFrozen(t *testing.T) {
	c := valid()
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	if c.DriverName != "io.github.tarn-csi" || c.IQNPrefix != "iqn.2026-01.io.github.tarn-csi" || c.Instance != "tarn" {
		t.Errorf("the names are %s, %s, %s", c.DriverName, c.IQNPrefix, c.Instance)
	}
	got, err := load(t, "--pool=tank=tank/csi", "--address=192.0.2.10", "--driver-name=org.example.csi")
	if err != nil || got.DriverName != "org.example.csi" || got.IQNPrefix != "iqn.2026-01.org.example.csi" {
		t.Errorf("an override gives %s, %s, %v", got.DriverName, got.IQNPrefix, err)
	}
}

// A port alone is the loopback's; every other address is given in full.
func TestHTTPAddresses(t *testing.T) {
	for given, want := range map[string]string{
		"": "", "9805": "127.0.0.1:9805", ":9805": ":9805", "127.0.0.1:0": "127.0.0.1:0", "192.0.2.10:9805": "192.0.2.10:9805", "[::1]:9805": "[::1]:9805",
	} {
		c := valid()
		c.HTTPAddress = given
		if err := c.Complete(); err != nil || c.HTTPAddress != want {
			t.Errorf("%q: %q, %v", given, c.HTTPAddress, err)
		}
	}
}

func TestDriverNamesThatBothVersionsTake(t *testing.T) {
	label := strings.Repeat("a", 20)
	for name, ok := range map[string]bool{
		"io.github.tarn-csi": true, "a.b": true, "a.b.c": true, "org.example.tarn2.csi": true, "org.3par.csi": true,
		strings.Join([]string{label, label, label + "a"}, "."): true, strings.Join([]string{label, label, label + "ab"}, "."): false,
		"": false, "tarn": false, "a": false, "a.": false, ".a": false, "a..b": false, "a.-b": false, "a-.b": false, "1a.b": false, "a.b1": false,
		"a.b-": false, "-a.b": false, "A.b": false, "a.B": false, "a_b.c": false, "a.b/c": false, "a.b c": false, "a.b\n": false, "ä.b": false,
	} {
		c := valid()
		c.DriverName = name
		err := c.Complete()
		if ok && err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if !ok && (fault.Kind(err) != fault.Invalid || !strings.Contains(err.Error(), "driverName is ")) {
			t.Errorf("%q is taken: %v", name, err)
		}
	}
}

func TestErrorsNameSettingValueAndWhatItMayBe(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		parts  []string // of the text
	}{
		{func(c *Config) { c.Mode = "both" }, []string{"mode", "both", "all, controller or node"}},
		{func(c *Config) { c.DriverName = "tarn" }, []string{"driverName", `"tarn"`, "63"}},
		{func(c *Config) { c.Protocols = nil }, []string{"protocols", "nfs, iscsi or both"}},
		{func(c *Config) { c.Protocols = []string{"nfs", "smb"} }, []string{"protocols", `"smb"`, "nfs, iscsi or both"}},
		{func(c *Config) { c.Endpoint = "tcp://192.0.2.1:1" }, []string{"endpoint", "tcp://192.0.2.1:1", "unix:///PATH"}},
		{func(c *Config) { c.LogLevel = "fatal" }, []string{"logLevel", `"fatal"`, "debug, info, warning or error"}},
		{func(c *Config) { c.LogLevel = "panic" }, []string{"logLevel", `"panic"`}},
		{func(c *Config) { c.LogLevel = "loud" }, []string{"logLevel", `"loud"`, "debug, info, warning or error"}},
		{func(c *Config) { c.LogFormat = "xml" }, []string{"logFormat", `"xml"`, "text or json"}},
		{func(c *Config) { c.HTTPAddress = "localhost:9805" }, []string{"httpAddress", `"localhost:9805"`, "literal address"}},
		{func(c *Config) { c.HTTPAddress = "127.0.0.1:70000" }, []string{"httpAddress", `"127.0.0.1:70000"`, "9805"}},
		{func(c *Config) { c.HTTPAddress = "::1" }, []string{"httpAddress", `"::1"`}},
		{func(c *Config) { c.HTTPAddress = "http" }, []string{"httpAddress", `"http"`}},
		{func(c *Config) { c.OTLPEndpoint = "127.0.0.1:4317" }, []string{"otlpEndpoint", "127.0.0.1:4317", "http://"}},
		{func(c *Config) { c.OTLPEndpoint = "ftp://127.0.0.1:4317" }, []string{"otlpEndpoint", "ftp", "http://"}},
		{func(c *Config) { c.OTLPEndpoint = "http://127.0.0.1" }, []string{"otlpEndpoint", "http://127.0.0.1:4317"}},
		{func(c *Config) { c.OTLPEndpoint = "http://user:pw@127.0.0.1:4317" }, []string{"otlpEndpoint"}},
		{func(c *Config) { c.OTLPEndpoint = "http://127.0.0.1:4317/v1/traces" }, []string{"otlpEndpoint"}},
		{func(c *Config) { c.OperationTimeout = time.Millisecond }, []string{"operationTimeout", "1ms", "1s to 1h"}},
		{func(c *Config) { c.ReconcileInterval = 25 * time.Hour }, []string{"reconcileInterval", "25h0m0s", "1s to 24h"}},
		{func(c *Config) { c.ISCSIOutage = 1500 * time.Millisecond }, []string{"iscsiOutage", "1.5s", "1s to 24h"}},
		{func(c *Config) { c.ISCSIOutage = 25 * time.Hour }, []string{"iscsiOutage", "25h0m0s", "1s to 24h"}},
		{func(c *Config) { c.OperationTimeout = 2 * time.Hour }, []string{"operationTimeout", "2h0m0s", "1s to 1h"}},
		{func(c *Config) { c.StateDir = "state" }, []string{"stateDir", `"state"`, "absolute path"}},
		{func(c *Config) { c.StateDir = "" }, []string{"stateDir", `""`, "absolute path"}},
		{func(c *Config) { c.RunDir = "run" }, []string{"runDir", `"run"`, "absolute path"}},
		{func(c *Config) { c.HostRoot = "host" }, []string{"hostRoot", `"host"`, "absolute path"}},
		{func(c *Config) { c.MasterKeyFile = "m.key" }, []string{"masterKeyFile", `"m.key"`, "absolute path"}},
		{func(c *Config) { c.NodeKeyFile = "n.key" }, []string{"nodeKeyFile", `"n.key"`, "absolute path"}},
		{func(c *Config) { c.IQNPrefix = "eui.1" }, []string{"iqnPrefix", `"eui.1"`, "iqn.YYYY-MM"}},
		{func(c *Config) { c.Instance = "a:b" }, []string{"instance", `"a:b"`, "lower-case letters"}},
		{func(c *Config) { c.Instance = strings.Repeat("i", 200) }, []string{"instance", "231 bytes", "at most 154"}},
		{func(c *Config) { c.NodeNetworks = []string{"192.0.2.1"} }, []string{"nodeNetworks", `"192.0.2.1"`, "192.0.2.0/24"}},
		{func(c *Config) { c.NodeNetworks = []string{"192.0.2.1/24"} }, []string{"nodeNetworks", `"192.0.2.1/24"`, "192.0.2.0/24"}},
		{func(c *Config) { c.MaxVolumesPerNode = -1 }, []string{"maxVolumesPerNode", `"-1"`, "0 for no limit"}},
		{func(c *Config) { c.Topology = map[string]string{"zone/": "z1"} }, []string{"topology", `"zone/"`, "example.com/zone"}},
		{func(c *Config) { c.Topology = map[string]string{"zone": ""} }, []string{"topology", `zone`, `""`, "63"}},
		{func(c *Config) { c.Pools = nil }, []string{"pool", "--pool NAME=PARENT", "--address"}},
		{func(c *Config) { c.Pools[0].Name = "Tank" }, []string{"pools.name", `"Tank"`, "at most 30"}},
		{func(c *Config) { c.Pools[0].Name = "" }, []string{"pools.name", `""`, "at most 30"}},
		{func(c *Config) { c.Pools[0].Parent = "tank" }, []string{"pools.parent", `"tank"`, "tank/csi"}},
		{func(c *Config) { c.Pools[0].Parent = "tank/" + strings.Repeat("a", 76) }, []string{"pools.parent", "at most 80"}},
		{func(c *Config) { c.Pools[0].Addresses = nil }, []string{"pools.addresses", `"tank"`, "--address"}},
		{func(c *Config) { c.Pools[0].Addresses = []string{"nas.example"} }, []string{"pools.addresses", `"tank"`, `"nas.example"`, "literal IP address"}},
		{func(c *Config) { c.Pools[0].CHAP = "off" }, []string{"pools.chap", `"off"`, "derived, secrets or none"}},
		{func(c *Config) { c.Pools = append(c.Pools, c.Pools[0]) }, []string{"pools.name", `"tank"`, "twice"}},
		{func(c *Config) { c.NodeName = "worker_1" }, []string{"nodeName", `"worker_1"`, "RFC 1123"}},
		{func(c *Config) { c.NodeAddresses = []string{"::ffff:192.0.2.1"} }, []string{"nodeAddresses", `"::ffff:192.0.2.1"`, "unicast"}},
		{func(c *Config) { c.PortalHints = []string{"192.0.2.10:3260"} }, []string{"portalHints", `"192.0.2.10:3260"`, "literal IP address"}},
	} {
		cfg := valid()
		c.change(&cfg)
		err := cfg.Complete()
		if fault.Kind(err) != fault.Invalid {
			t.Errorf("%q: %v", c.parts, err)
			continue
		}
		for _, part := range c.parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
	}
}

func TestParents(t *testing.T) {
	for parent, ok := range map[string]bool{
		"tank/csi": true, "tank/k8s/csi": true, "Tank-1.a:b/c s i": true, "tank/" + strings.Repeat("a", 75): true, "tank/.csi": true,
		"": false, "tank": false, "tank/": false, "/tank/csi": false, "tank//csi": false, "tank/csi/": false, "tank/../csi": false, "tank/..": false,
		"tank/.": false, "tank/./csi": false, "tank/a..b": false, "tank/csi@snap": false, "tank/csi#mark": false, "tank/-r": false, "-r/csi": false,
		"1tank/csi": false, "tank/c%i": false, "tank/csi\n": false, "tank/cs\ti": false, "tank/ä": false,
	} {
		c := valid()
		c.Pools[0].Parent = parent
		if err := c.Complete(); (err == nil) != ok {
			t.Errorf("%q: %v", parent, err)
		}
	}
}

func TestPoolsMustNotShareOrContainEachOthersParent(t *testing.T) {
	for _, c := range []struct {
		a, b string
		ok   bool
	}{
		{"tank/a", "tank/b", true}, {"tank/a", "tank/ab", true}, {"tank/a/x", "tank/b/x", true},
		{"tank/a", "tank/a", false}, {"tank/a", "tank/a/b", false}, {"tank/a/b/c", "tank/a", false},
	} {
		cfg := valid()
		cfg.Pools = []Pool{
			{Name: "one", Parent: c.a, Addresses: []string{"192.0.2.10"}},
			{Name: "two", Parent: c.b, Addresses: []string{"192.0.2.10"}},
		}
		if err := cfg.Complete(); (err == nil) != c.ok {
			t.Errorf("%s and %s: %v", c.a, c.b, err)
		}
	}
}

func TestWhatCompleteFillsIn(t *testing.T) {
	c := valid()
	c.StateDir = "/srv/tarn"
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	want := Pool{Name: "tank", Parent: "tank/csi", Addresses: []string{"192.0.2.10"}, ISCSIPort: 3260, CHAP: chap.Derived}
	if diff := cmp.Diff([]Pool{want}, c.Pools); diff != "" {
		t.Error(diff)
	}
	if c.MasterKeyFile != "/srv/tarn/master.key" || c.NodeKeyFile != "/srv/tarn/node.key" {
		t.Errorf("the keys are in %s and %s", c.MasterKeyFile, c.NodeKeyFile)
	}
	again := c
	if err := again.Complete(); err != nil || !cmp.Equal(c, again) {
		t.Errorf("a second time changes it: %s, %v", cmp.Diff(c, again), err)
	}

	c = valid()
	c.Mode, c.Pools, c.NodeName = Node, nil, ""
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Complete(); err != nil || c.NodeName != host {
		t.Errorf("a node without a name is %q, %v", c.NodeName, err)
	}
	c = valid()
	c.Mode, c.NodeName = Controller, ""
	if err := c.Complete(); err != nil || c.NodeName != "" {
		t.Errorf("a controller has the node name %q, %v", c.NodeName, err)
	}
}

func TestWhoNeedsACHAPKey(t *testing.T) {
	for _, c := range []struct {
		protocols []string
		mode      chap.Mode
		want      bool
	}{
		{[]string{"nfs", "iscsi"}, chap.Derived, true}, {[]string{"nfs"}, chap.Derived, false},
		{[]string{"iscsi"}, chap.Secrets, false}, {[]string{"iscsi"}, chap.None, false},
	} {
		cfg := valid()
		cfg.Protocols, cfg.Pools[0].CHAP = c.protocols, c.mode
		if got := cfg.NeedsCHAPKey(); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

func TestEndpointForms(t *testing.T) {
	longest := "/" + strings.Repeat("s", 106)
	for endpoint, want := range map[string]string{
		"unix:///run/tarn/csi.sock": "/run/tarn/csi.sock", "unix:/run/csi.sock": "/run/csi.sock", "/run/csi.sock": "/run/csi.sock",
		"/run/./a/../csi.sock": "/run/csi.sock", "unix://" + longest: longest, longest: longest,
		"": "", "unix://": "", "unix:": "", "csi.sock": "", "./csi.sock": "", "unix://csi.sock": "", "unix:csi.sock": "", "unix://@abstract": "",
		"@abstract": "", "tcp://192.0.2.1:9000": "", "http:///run/csi.sock": "", "UNIX:///run/csi.sock": "", longest + "s": "", "/": "", "unix:///": "",
		"/run/a\x00b": "",
	} {
		got, err := SocketPath(endpoint)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", endpoint, got, err)
		}
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		parts   []string
	}{
		"unknown key":         {"mode: all\nspeed: high\n", []string{"line 2", "speed"}},
		"unknown key, nested": {"pools:\n- name: tank\n  parent: tank/csi\n  chop: none\n", []string{"line 4", "chop"}},
		"key given twice":     {"mode: all\nmode: node\n", []string{"line 2", "mode"}},
		"wrong type":          {"mode: all\npools: tank\n", []string{"line 2"}},
		"port too large":      {"pools:\n- name: tank\n  iscsiPort: 70000\n", []string{"line 3"}},
		"seconds, no unit":    {"operationTimeout: 120\n", []string{"line 1"}},
		"no YAML":             {"mode: [\n", []string{"line"}},
		"second document":     {"mode: node\n---\nspeed: high\n", []string{"one YAML document"}},
		"damaged second one":  {"mode: node\n---\n[\n", []string{"one YAML document"}},
	} {
		path := file(t, c.content)
		_, err := load(t, "--config", path)
		if err == nil {
			t.Errorf("%s: loads", name)
			continue
		}
		for _, part := range append(c.parts, path) {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", name, err, part)
			}
		}
	}
	if _, err := load(t, "--config", "/nonexistent/tarn.yaml"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := load(t, "--config", file(t, ""), "--mode=node", "--node-name=w"); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

func TestAListInTheFileReplacesTheDefault(t *testing.T) {
	c, err := load(t, "--config", file(t, "mode: node\nprotocols: [iscsi]\n"))
	if err != nil || !slices.Equal(c.Protocols, []string{"iscsi"}) || c.Serves("nfs") || !c.Serves("iscsi") {
		t.Errorf("got %q, %v", c.Protocols, err)
	}
}
