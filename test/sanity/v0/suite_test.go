package sanityv0

import (
	"context"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
)

func skipWithEndpoint(t *testing.T) {
	if flags.Given() {
		t.Skip("the command line names a plugin; this test is about the suite")
	}
}

// The suite passes on an honest plugin, whatever kind of volume it is told to use.
func TestSuitePassesOnReference(t *testing.T) {
	skipWithEndpoint(t)
	for _, tc := range []struct {
		name  string
		setup func(r *reference)
		edit  func(o *Options)
	}{
		{name: "mount"},
		{name: "block", edit: func(o *Options) { o.Block = true }},
		{name: "ext4 on one node", setup: func(r *reference) { r.multiNode = false }, edit: func(o *Options) { o.FSType = "ext4" }},
		{name: "block on one node", setup: func(r *reference) { r.multiNode = false }, edit: func(o *Options) { o.Block = true }},
		{name: "mount only", setup: func(r *reference) { r.refuseBlock = true }},
		{name: "slow", setup: func(r *reference) { r.latency = 4 * time.Millisecond }},
		{name: "least options", edit: func(o *Options) {
			*o = Options{Endpoint: o.Endpoint, Parameters: o.Parameters, MultiNode: true, Host: Host{Mounted: o.Host.Mounted}}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newReference()
			if tc.setup != nil {
				tc.setup(r)
			}
			o := r.options(t, r.serve(t, nil))
			if tc.edit != nil {
				tc.edit(&o)
			}
			t.Run("run", func(t *testing.T) { Run(t, o) })
			r.wantNothingLeft(t)
			// The budget of a run on a slow machine.
			for what, n := range map[string][2]int{
				"volumes":                 {len(r.volumesEver), 35},
				"CreateVolume calls":      {r.calls["CreateVolume"], 60},
				"NodeStageVolume calls":   {r.calls["NodeStageVolume"], 40},
				"NodePublishVolume calls": {r.calls["NodePublishVolume"], 60},
			} {
				if n[0] > n[1] {
					t.Errorf("%d %s that are answered with OK, want at most %d", n[0], what, n[1])
				}
			}
			t.Logf("%d volumes; calls answered with OK: %v", len(r.volumesEver), r.calls)
		})
	}
}

func (r *reference) wantNothingLeft(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.volumes) + len(r.staged) + len(r.targets) + len(r.mounts) + len(r.data); n > 0 {
		t.Errorf("left: %v %v %v %v %v", r.volumes, r.staged, r.targets, r.mounts, r.data)
	}
}

// Each check can be run alone.
func TestEachCheckRunsAlone(t *testing.T) {
	skipWithEndpoint(t)
	for _, ck := range Checks() {
		r := newReference()
		o := r.options(t, r.serve(t, nil))
		o.Only = regexp.MustCompile("^" + regexp.QuoteMeta(ck.Name) + "$")
		report, err := Execute(t.Context(), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !report.OK() || len(report.Results) == 0 || report.Results[len(report.Results)-1].Check.Name != ck.Name {
			t.Errorf("%s alone:\n%s", ck.Name, report.Summary())
			for _, res := range report.Results {
				t.Log(res)
			}
		}
		r.wantNothingLeft(t)
	}
}

// A plugin that knows only csi.v1 ends the run at the first check.
func TestPluginOfV1FailsAtOnce(t *testing.T) {
	skipWithEndpoint(t)
	socket := filepath.Join(shortDir(t), "csi.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	csiv1.RegisterIdentityServer(s, identityV1{})
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)

	report, err := Execute(t.Context(), Options{Endpoint: socket}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{nameServes}, report.Names(Failed)); diff != "" || len(report.Results) != 1 {
		t.Errorf("failed checks (-want +got):\n%s", diff)
	}
	if !strings.Contains(report.Stopped, "UNIMPLEMENTED: the endpoint speaks csi.v1 and not csi.v0") {
		t.Errorf("stopped with %q", report.Stopped)
	}
	MustFail(t, Options{Endpoint: socket}, nameServes)
}

type identityV1 struct {
	csiv1.UnimplementedIdentityServer
}

func (identityV1) GetPluginInfo(context.Context, *csiv1.GetPluginInfoRequest) (*csiv1.GetPluginInfoResponse, error) {
	return &csiv1.GetPluginInfoResponse{Name: "org.example.new", VendorVersion: "1"}, nil
}

func TestAbsentPluginFailsAtOnce(t *testing.T) {
	skipWithEndpoint(t)
	report, err := Execute(t.Context(), Options{Endpoint: filepath.Join(shortDir(t), "none.sock"), RetryFor: 50 * time.Millisecond}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if report.Stopped == "" || report.OK() || len(report.Results) != 1 {
		t.Errorf("got %q after %d checks", report.Stopped, len(report.Results))
	}
}

// A run that is ended in the middle leaves nothing.
func TestEndedRunCleansUp(t *testing.T) {
	skipWithEndpoint(t)
	r := newReference()
	o := r.options(t, r.serve(t, nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	report, err := Execute(ctx, o, func(res Result) {
		if res.Check.Name == "node-publish/same-target-same-arguments-is-ok" {
			cancel()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if report.Stopped == "" || report.OK() {
		t.Errorf("an ended run is reported as complete")
	}
	r.wantNothingLeft(t)
}

func TestCheckNamesAreUniqueAndCite(t *testing.T) {
	form := regexp.MustCompile(`^[a-z-]+/[a-z0-9-]+$`)
	seen := map[string]bool{}
	for _, ck := range Checks() {
		if !form.MatchString(ck.Name) || ck.Section == "" {
			t.Errorf("check %q [%s]", ck.Name, ck.Section)
		}
		if seen[ck.Name] {
			t.Errorf("two checks are named %s", ck.Name)
		}
		seen[ck.Name] = true
	}
	t.Logf("%d checks", len(seen))
}

func TestCountMounts(t *testing.T) {
	table := strings.Join([]string{
		`22 1 0:21 / / rw shared:1 - tmpfs tmpfs rw`,
		`30 22 0:30 / /a\040b rw - nfs4 192.0.2.1:/x rw`,
		`31 22 0:30 / /t rw - nfs4 192.0.2.1:/x rw`,
		`32 31 0:30 / /t ro - nfs4 192.0.2.1:/x ro`,
		`33 31 0:30 / /t/below rw - nfs4 192.0.2.1:/x rw`,
	}, "\n")
	for path, want := range map[string]int{"/a b": 1, "/t": 2, "/": 1, "/none": 0} {
		got, err := countMounts(strings.NewReader(table), path)
		if err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", path, got, err, want)
		}
	}
}

func TestLocalHostCountsRoot(t *testing.T) {
	if n, err := LocalHost().Mounted("/"); err != nil || n < 1 {
		t.Errorf("got %d, %v", n, err)
	}
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{"4096": 4096, "64Mi": 64 << 20, "1Gi": 1 << 30, "": 0, "-1": 0, "1.5Gi": 0, "9999999999Ti": 0, "5 Mi": 0} {
		if got, err := parseSize(in); got != want || (err == nil) != (want > 0) {
			t.Errorf("parseSize(%q) = %d, %v, want %d", in, got, err, want)
		}
	}
}
