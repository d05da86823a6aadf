package nfs

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
)

func attacher() *Attacher {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return New(run.New(log))
}

func TestSource(t *testing.T) {
	for _, c := range []struct{ server, share, want string }{
		{"192.0.2.10", "/tank/csi/pvc-1", "192.0.2.10:/tank/csi/pvc-1"},
		{"2001:db8::10", "/tank/csi/pvc-1", "[2001:db8::10]:/tank/csi/pvc-1"},
		{"[2001:db8::10]", "/tank/csi/pvc-1", "[2001:db8::10]:/tank/csi/pvc-1"},
		{"::1", "/v", "[::1]:/v"},
		{"nas.example", "/tank/csi/a_b-c.d", "nas.example:/tank/csi/a_b-c.d"},
		{"NAS-1", "/tank/%41", "NAS-1:/tank/%41"},
	} {
		d, err := attacher().Attach(context.Background(), attach.Target{Server: c.server, Share: c.share}, nil)
		if err != nil || d.Path != c.want {
			t.Errorf("%s %s: %q, %v", c.server, c.share, d.Path, err)
		}
	}
}

func TestC55HostileServerOrShareIsRefused(t *testing.T) {
	bad := map[string]string{} // server to share
	for _, server := range []string{
		"", "192.0.2.10,soft", "192.0.2.10 -o ro", "-o", "--bind", "a,b", "nas:/x", "[nas]", "[192.0.2.10]", "[2001:db8::1",
		"2001:db8::1]", "fe80::1%eth0", "nas..example", ".nas", "nas-", "na/s", "nas\n", "nas\x00", "näs", strings.Repeat("a", 254),
	} {
		bad[server] = "/tank/v"
	}
	shares := []string{
		"", "tank/v", "/tank/../root", "/tank/csi/..", "/tank//v", "/tank/v/", "/tank/./v", "/tank/v,soft", "/tank/v x",
		"/tank/v\t", "/tank/v\n", "/tank/v\\040", `/tank/"v`, "/tank/'v", "/tank/v#", "/tank:/v", "/tank/v\x00", "/tänk",
	}
	try := func(server, share string) {
		d, err := attacher().Attach(context.Background(), attach.Target{Server: server, Share: share}, nil)
		if !errors.Is(err, fault.Invalid) || d.Path != "" {
			t.Errorf("%q %q: %q, %v", server, share, d.Path, err)
		}
		if _, ok, err := attacher().Find(context.Background(), attach.Target{Server: server, Share: share}); ok || err == nil {
			t.Errorf("%q %q is found", server, share)
		}
	}
	for server, share := range bad {
		try(server, share)
	}
	for _, share := range shares {
		try("192.0.2.10", share)
	}
}

func TestDetachNeedsNothing(t *testing.T) {
	if err := attacher().Detach(context.Background(), attach.Target{}); err != nil {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct{ user, want []string }{
		{nil, []string{"hard", "vers=4.2"}},
		{[]string{"noatime"}, []string{"hard", "vers=4.2", "noatime"}},
		{[]string{"soft", "timeo=50"}, []string{"vers=4.2", "soft", "timeo=50"}},
		{[]string{"nfsvers=3"}, []string{"hard", "nfsvers=3"}},
		{[]string{"ro,vers=4.1"}, []string{"hard", "ro,vers=4.1"}},
		{[]string{"v3", "nolock"}, []string{"hard", "v3", "nolock"}},
		{[]string{"minorversion=1"}, []string{"hard", "minorversion=1"}},
		{[]string{"hard"}, []string{"vers=4.2", "hard"}},
		{[]string{"xvers=3"}, []string{"hard", "vers=4.2", "xvers=3"}},
	} {
		if got := Options(c.user); !slices.Equal(got, c.want) {
			t.Errorf("Options(%v) = %v, want %v", c.user, got, c.want)
		}
	}
}

func TestReady(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	a := attacher()
	a.filesystems = filepath.Join(t.TempDir(), "filesystems")
	write := func(path, content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(a.filesystems, "nodev\tsysfs\n\text4\nnodev\tnfs4\n")
	if err := a.Ready(context.Background()); !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "mount.nfs") {
		t.Errorf("without mount.nfs: %v", err)
	}
	write(filepath.Join(bin, "mount.nfs"), "#!/bin/sh\nexit 1\n")
	if err := a.Ready(context.Background()); err != nil {
		t.Errorf("with the filesystem loaded: %v", err)
	}
	write(a.filesystems, "nodev\tnfs4something\n")
	write(filepath.Join(bin, "modprobe"), "#!/bin/sh\nexit 1\n")
	if err := a.Ready(context.Background()); !errors.Is(err, fault.Unavailable) {
		t.Errorf("without the module: %v", err)
	}
	write(filepath.Join(bin, "modprobe"), "#!/bin/sh\n[ \"$*\" = \"--dry-run --quiet fs-nfs4\" ]\n")
	if err := a.Ready(context.Background()); err != nil {
		t.Errorf("with the module: %v", err)
	}
	if err := os.Remove(a.filesystems); err != nil {
		t.Fatal(err)
	}
	if err := a.Ready(context.Background()); !errors.Is(err, fault.Unavailable) {
		t.Errorf("without /proc: %v", err)
	}
}
