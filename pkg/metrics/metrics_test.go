package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tarn-csi/tarn/pkg/node"
	"github.com/tarn-csi/tarn/pkg/op"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// host are sources in which there is one of everything.
func host() Sources {
	long := time.Now().Add(-time.Hour)
	volumes := []volume.Seen{
		{Entry: volume.Entry{ID: "tank/a", Protocol: volume.NFS, SizeBytes: 1000, PublishedTo: []string{"w@192.0.2.21"}, Export: volume.ExportOpen}},
		{Entry: volume.Entry{ID: "tank/b", Protocol: volume.ISCSI, SizeBytes: 30, PublishedTo: []string{"w@192.0.2.21"}, Export: volume.ExportMissing,
			Conditions: []volume.Condition{{Severity: volume.Inaccessible, Reason: volume.NotExported}}}, Sessions: 2},
		{Entry: volume.Entry{ID: "tank/c", Protocol: volume.ISCSI, SizeBytes: 7, Export: volume.ExportNone}},
		{Entry: volume.Entry{ID: "tank/d", Protocol: "what somebody has set", Export: volume.ExportUnknown}},
	}
	return Sources{
		Children: func() []run.Child {
			return []run.Child{{Tool: "zfs", Verb: "get", Since: long}, {Tool: "zfs", Verb: "get", Since: time.Now()}, {Tool: "mount", Verb: "nfs", Since: time.Now()}}
		},
		Operations: map[string]func() []op.Running{"storage": func() []op.Running {
			return []op.Running{{What: "list", Since: long.Add(-time.Hour)}, {What: "CreateVolume", Keys: []string{"tank/a"}, Since: long, Overdue: true}}
		}},
		Round: func() volume.Round {
			return volume.Round{
				Ended: time.Unix(1_700_000_000, 0), Took: 1500 * time.Millisecond, Rounds: 9, Failed: 2,
				Repairs: map[volume.Repair]uint64{volume.RepairedExport: 3}, Unwanted: map[string]int{volume.NFS: 1},
				Pools: []volume.PoolRound{
					{Name: "tank", UsedBytes: 10, AvailableBytes: 90, Volumes: volumes, Snapshots: map[string]int{volume.NFS: 4}, Deleted: 5},
					{Name: "away", Err: errors.New("it is not imported")},
					{Name: "slow", Unlisted: errors.New("it is not listed in time")},
				},
			}
		},
		Tally: func() node.Tally {
			return node.Tally{Ended: time.Unix(1_700_000_001, 0), Sweeps: 8, Failed: 1, Removed: 6, Staged: map[string]int{volume.NFS: 11}, Sessions: 3, Lost: 1, Orphans: 2}
		},
		Ready: func() error { return nil },
		Stuck: func() error { return errors.New("a loop hangs") },
	}
}

// full are metrics with a sample of each.
func full(t *testing.T) *Metrics {
	t.Helper()
	m := New("v1.2.3")
	m.Show(host())
	log := logrus.New()
	log.SetOutput(io.Discard)
	_, err := run.New(log, m.Child).Run(t.Context(), run.Cmd{Tool: "true"})
	if err != nil {
		t.Fatal(err)
	}
	called(m, "/csi.v1.Controller/CreateVolume", nil)
	return m
}

func called(m *Metrics, method string, err error) {
	_, _ = m.Unary(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, err })
}

// samples are what a scrape shows: the values by name and labels.
func samples(t *testing.T, m *Metrics) map[string]float64 {
	t.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			var labels []string
			for _, l := range s.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := s.GetGauge().GetValue() + s.GetCounter().GetValue() + float64(s.GetHistogram().GetSampleCount())
			found[strings.TrimSpace(f.GetName()+" "+strings.Join(labels, " "))] = value
		}
	}
	return found
}

func want(t *testing.T, got map[string]float64, want map[string]float64) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if v, ok := got[name]; !ok || v != want[name] {
			t.Errorf("%s is %v (there: %v), want %v", name, v, ok, want[name])
		}
	}
}

func TestCallsAreCountedByVersionMethodAndCode(t *testing.T) {
	m := New("")
	called(m, "/csi.v1.Controller/CreateVolume", nil)
	called(m, "/csi.v1.Controller/CreateVolume", status.Error(codes.Aborted, "busy"))
	called(m, "/csi.v0.Controller/CreateVolume", nil)
	called(m, "/csi.v0.Controller/CreateVolume", nil)
	called(m, "/csi.v11.Controller/CreateVolume", nil)
	want(t, samples(t, m), map[string]float64{
		"tarn_rpcs_total code=OK csi=v1 method=CreateVolume":      1,
		"tarn_rpcs_total code=Aborted csi=v1 method=CreateVolume": 1,
		"tarn_rpcs_total code=OK csi=v0 method=CreateVolume":      2,
		"tarn_rpcs_total code=OK csi=other method=CreateVolume":   1,
		"tarn_rpc_duration_seconds csi=v1 method=CreateVolume":    2,
		"tarn_build_info go=" + goVersion(t, m) + " version=":     1,
	})
}

func goVersion(t *testing.T, m *Metrics) string {
	t.Helper()
	for name := range samples(t, m) {
		if rest, ok := strings.CutPrefix(name, "tarn_build_info go="); ok {
			version, _, _ := strings.Cut(rest, " ")
			return version
		}
	}
	return ""
}

func TestWhatTheSourcesKnow(t *testing.T) {
	got := samples(t, full(t))
	want(t, got, map[string]float64{
		"tarn_ready": 1, "tarn_healthy": 0,
		"tarn_children_running tool=zfs verb=get": 2, "tarn_children_running tool=mount verb=": 1,
		"tarn_operations_running service=storage": 2, "tarn_operations_overdue service=storage": 1, "tarn_locks_held service=storage": 1,
		"tarn_pool_usable pool=tank": 1, "tarn_pool_usable pool=away": 0, "tarn_pool_listed pool=tank": 1, "tarn_pool_listed pool=slow": 0, "tarn_pool_usable pool=slow": 1, "tarn_pool_used_bytes pool=tank": 10, "tarn_pool_available_bytes pool=tank": 90,
		"tarn_volumes pool=tank protocol=nfs": 1, "tarn_volumes pool=tank protocol=iscsi": 2, "tarn_volumes pool=tank protocol=other": 1,
		"tarn_volume_bytes pool=tank protocol=iscsi": 37, "tarn_snapshots pool=tank protocol=nfs": 4, "tarn_deleted_volumes pool=tank": 5,
		"tarn_exports_wanted pool=tank protocol=nfs": 1, "tarn_exports_seen pool=tank protocol=nfs": 1,
		"tarn_exports_wanted pool=tank protocol=iscsi": 1, "tarn_exports_seen pool=tank protocol=iscsi": 0,
		"tarn_exports_wanted pool=away protocol=iscsi": 0, "tarn_exports_unwanted protocol=nfs": 1, "tarn_sessions pool=tank": 2,
		"tarn_volume_conditions pool=tank reason=NotExported severity=INACCESSIBLE": 1,
		"tarn_reconcile_rounds_total": 9, "tarn_reconcile_failures_total": 2, "tarn_reconcile_repairs_total kind=export": 3,
		"tarn_reconcile_repairs_total kind=unwanted": 0, "tarn_reconcile_duration_seconds": 1.5, "tarn_reconcile_end_timestamp_seconds": 1_700_000_000,
		"tarn_sweep_rounds_total": 8, "tarn_sweep_failures_total": 1, "tarn_sweep_removed_total": 6, "tarn_sweep_end_timestamp_seconds": 1_700_000_001,
		"tarn_node_volumes_staged protocol=nfs": 11, "tarn_node_sessions state=up": 2, "tarn_node_sessions state=lost": 1, "tarn_node_orphans": 2,
		"tarn_children_total outcome=ok tool=other verb=other": 1, "tarn_child_duration_seconds tool=other verb=other": 1,
	})
	// The age of a lock is that of the oldest that holds one, not of the oldest.
	for _, name := range []string{"tarn_child_oldest_seconds", "tarn_lock_oldest_seconds service=storage"} {
		if age := got[name]; age < 3600 || age > 3700 {
			t.Errorf("%s is %v", name, age)
		}
	}
}

func TestANodeHasNoPools(t *testing.T) {
	s := host()
	s.Round = nil
	m := New("")
	m.Show(s)
	for name := range samples(t, m) {
		if strings.Contains(name, "pool") || strings.Contains(name, "reconcile") {
			t.Errorf("there is %s", name)
		}
	}
}

// Whatever is started, and however many volumes there are, the series stay few.
func TestCardinalityIsBounded(t *testing.T) {
	m, s := New(""), host()
	round := s.Round()
	for i := range 3000 {
		name := fmt.Sprint("x", i)
		m.Child(t.Context(), run.Child{Tool: name, Verb: name}, nil)
		m.Child(t.Context(), run.Child{Tool: "zfs", Verb: name}, errors.New("not started"))
		m.Child(t.Context(), run.Child{Tool: "mount", Verb: name}, &run.Error{Code: 32})
		round.Pools[0].Volumes = append(round.Pools[0].Volumes, volume.Seen{Entry: volume.Entry{ID: "tank/" + name, Protocol: name, PublishedTo: []string{name}}})
	}
	s.Round = func() volume.Round { return round }
	m.Show(s)
	got := samples(t, m)
	want(t, got, map[string]float64{
		"tarn_children_total outcome=ok tool=other verb=other":   3000,
		"tarn_children_total outcome=killed tool=zfs verb=other": 3000,
		"tarn_children_total outcome=failed tool=mount verb=":    3000,
		"tarn_volumes pool=tank protocol=other":                  3001,
	})
	n := 0
	for name := range got {
		if strings.HasPrefix(name, "tarn_") {
			n++
		}
	}
	if n > 100 {
		t.Errorf("there are %d series", n)
	}
}

func TestScrape(t *testing.T) {
	w := httptest.NewRecorder()
	full(t).Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, part := range []string{`tarn_build_info{go="go`, `version="v1.2.3"} 1`, "go_goroutines", "process_open_fds", `tarn_pool_usable{pool="away"} 0`} {
		if !strings.Contains(w.Body.String(), part) {
			t.Errorf("the scrape has no %s", part)
		}
	}
	if w.Code != http.StatusOK {
		t.Errorf("status %d", w.Code)
	}
}
