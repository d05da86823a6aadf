package iscsi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/export/configfs/fake"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

// modprobe is a Runner that loads the fake's modules.
type modprobe struct {
	load  func()
	err   error
	lines []string
}

func (m *modprobe) Run(_ context.Context, c run.Cmd) ([]byte, error) {
	m.lines = append(m.lines, c.Tool+" "+strings.Join(c.Args, " "))
	if m.err == nil && m.load != nil {
		m.load()
	}
	return nil, m.err
}

const loadModules = "modprobe -a target_core_mod target_core_iblock iscsi_target_mod"

// C50: after a boot nothing is loaded; the tree is missing, or empty.
func TestC50ReadyLoadsWhatIsMissing(t *testing.T) {
	f := fake.Bare()
	h := fakeHost(t)
	h.fs, h.fake = f, f
	m := &modprobe{load: f.LoadModules}
	i := h.instanceWith(t, "a", func(c *Config) { c.Runner = m })
	if list, err := i.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("List without modules: %v, %v", list, err)
	}
	if err := i.Remove(t.Context(), uuid(1)); err != nil {
		t.Errorf("Remove without modules: %v", err)
	}
	v := grants(h.volume(t, 1), openA)
	f.AddDevice(fake.Device{Path: v.Source, SizeBytes: v.SizeBytes, Major: 230})
	if err := i.Ensure(t.Context(), v); !errors.Is(err, fault.Unavailable) {
		t.Errorf("Ensure without modules: %v", err)
	}
	for range 2 {
		if err := i.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(m.lines, []string{loadModules}) {
		t.Errorf("children: %q", m.lines)
	}
	i.ensure(t, v)
	i.remove(t, v)
	if _, err := f.List(fabricDir); err != nil {
		t.Errorf("the shared directory was removed: %v", err)
	}
}

func TestC50ReadyWithModulesAndNoFabric(t *testing.T) {
	f := fake.Bare()
	f.LoadModules()
	h := fakeHost(t)
	h.fs, h.fake = f, f
	v := grants(h.volume(t, 1), openA)
	f.AddDevice(fake.Device{Path: v.Source, SizeBytes: v.SizeBytes, Major: 230})
	i := h.instance(t, "a") // without a Runner
	if err := i.Ensure(t.Context(), v); !errors.Is(err, fault.Unavailable) {
		t.Errorf("Ensure without the fabric: %v", err)
	}
	if err := i.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	i.ensure(t, v)
}

func TestC50ReadySaysWhyNot(t *testing.T) {
	for name, c := range map[string]struct {
		runner Runner
		fail   error
		want   string
	}{
		"no configfs":           {&modprobe{}, nil, "mount configfs"},
		"nothing to load with":  {nil, nil, "mount configfs"},
		"a module is not there": {&modprobe{err: errors.New("FATAL: Module target_core_mod not found")}, nil, "target_core_mod not found"},
		"unreadable":            {&modprobe{}, syscall.EACCES, "permission denied"},
	} {
		h := fakeHost(t)
		h.fs = fake.Bare()
		i := h.instanceWith(t, "a", func(cfg *Config) { cfg.Runner = c.runner })
		if c.fail != nil {
			i.inject.FailNth(1, c.fail)
		}
		err := i.Ready(t.Context())
		if !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestC50OneBrokenVolumeLeavesTheOthers(t *testing.T) {
	h := fakeHost(t)
	i := h.instanceWith(t, "a", func(c *Config) { c.DeviceWait = 20 * time.Millisecond })
	missing := grants(h.volume(t, 2), chapA)
	missing.Source = "/dev/zvol/tank/csi/missing"
	one, three := grants(h.volume(t, 1), chapA), grants(h.volume(t, 3), chapA)
	i.ensure(t, one)
	if err := i.Ensure(t.Context(), missing); !errors.Is(err, fault.Unavailable) {
		t.Fatalf("Ensure: %v", err)
	}
	i.ensure(t, three)
	list, err := i.List(t.Context())
	if err != nil || len(list) != 2 || !list[0].Complete || !list[1].Complete {
		t.Fatalf("%v, %v", list, err)
	}
}

// Ensure, Remove, List and Sessions start no child: with a Runner that counts,
// whatever happens.
func TestNoChildProcesses(t *testing.T) {
	h := fakeHost(t)
	m := &modprobe{}
	i := h.instanceWith(t, "a", func(c *Config) { c.Runner = m })
	v := grants(h.volume(t, 1), chapA)
	i.ensure(t, v)
	_, _ = i.List(t.Context())
	_, _ = i.Sessions(t.Context(), v.UUID)
	i.remove(t, v)
	if err := i.Ready(t.Context()); err != nil || len(m.lines) > 0 {
		t.Errorf("children: %q, %v", m.lines, err)
	}
}
