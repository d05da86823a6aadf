package release

import (
	"context"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/octal"
	"github.com/tarn-csi/tarn/pkg/run"
)

// What Linux 6.1 shows of a client, and of its states on a device 0:30.
const (
	info = `clientid: 0x7f2fe2ac6b0cdf7f
address: "127.0.0.1:754"
status: confirmed
seconds from last renew: 1
name: "Linux NFSv4.2 worker-1"
minor version: 2
Implementation domain: "kernel.org"
Implementation name: "Linux 6.1.0-50-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.176-1 (2026-07-02) x86_64"
Implementation time: [0, 0]
callback state: UP
callback address: 127.0.0.1:0
`
	states = `- 0x000000017fdf0c6bace22f7f02000000: { type: open, access: r-, deny: --, superblock: "00:1e:2", filename: "/file "q".txt", owner: "open id:\x00\x00\x00#\x00\x00\x00\x00\x00\x00\x00\x13#\xeaS\xe6" }
- 0x000000017fdf0c6bace22f7f03000000: { type: open, access: -w, deny: --, superblock: "00:1f:3", filename: "/w", owner: "open id:\x00\x00\x00#\x00\x00\x00\x00\x00\x00\x00\x13#\xeaS\xe6" }
- 0x000000017fdf0c6baee22f7f02000000: { type: deleg, access: r, superblock: "00:1f:2", filename: "/read.txt" }
`
)

// host is a Releaser whose /proc and /sys are folders.
type host struct {
	*testing.T
	*Releaser
}

func newHost(t *testing.T) host {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	return host{t, &Releaser{run: run.New(log), proc: t.TempDir(), sys: t.TempDir()}}
}

func (h host) write(path, text string) {
	h.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		h.Fatal(err)
	}
}

func (h host) read(path string) string {
	h.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		h.Fatal(err)
	}
	return string(raw)
}

// client makes an NFS client of the host, with states on the device of dir.
func (h host) client(id, address, dir string) (ctl string) {
	h.Helper()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		h.Fatal(err)
	}
	base := filepath.Join(h.proc, "fs/nfsd/clients", id)
	h.write(filepath.Join(base, "info"), strings.ReplaceAll(info, "127.0.0.1:754", address))
	device := strconv.FormatUint(uint64(unix.Major(st.Dev)), 16) + ":" + strconv.FormatUint(uint64(unix.Minor(st.Dev)), 16)
	if len(device[:strings.IndexByte(device, ':')]) == 1 {
		device = "0" + device
	}
	if i := strings.IndexByte(device, ':'); len(device)-i == 2 {
		device = device[:i+1] + "0" + device[i+1:]
	}
	h.write(filepath.Join(base, "states"), strings.ReplaceAll(states, "00:1e", device))
	ctl = filepath.Join(base, "ctl")
	h.write(ctl, "")
	return ctl
}

func TestHoldsFile(t *testing.T) {
	h := newHost(t)
	path := filepath.Join(h.proc, "states")
	h.write(path, states)
	for _, c := range []struct {
		major, minor uint32
		file         string
		holds        bool
	}{
		{0, 0x1e, `/file "q".txt`, true},
		{0, 0x1f, "/w", true},
		{0, 0x1, "", false},
		{0x1e, 0, "", false},
	} {
		file, holds, err := holdsFile(path, c.major, c.minor)
		if err != nil || holds != c.holds || file != c.file {
			t.Errorf("%d:%d: %q, %t, %v", c.major, c.minor, file, holds, err)
		}
	}
	h.write(path, states[strings.LastIndex(states, "- "):])
	if file, holds, err := holdsFile(path, 0, 0x1f); !holds || file != "/read.txt" || err != nil {
		t.Errorf("a delegation: %q, %t, %v", file, holds, err)
	}
}

func TestClientAddress(t *testing.T) {
	h := newHost(t)
	path := filepath.Join(h.proc, "info")
	for in, want := range map[string]string{
		"127.0.0.1:754": "127.0.0.1", "[::1]:703": "::1", "[2001:db8::12]:1": "2001:db8::12", "[::ffff:192.0.2.1]:9": "192.0.2.1", "192.0.2.7": "192.0.2.7",
	} {
		h.write(path, strings.ReplaceAll(info, "127.0.0.1:754", in))
		if got, err := clientAddress(path); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	h.write(path, "clientid: 0x1\n")
	if _, err := clientAddress(path); err == nil {
		t.Error("an address came from nothing")
	}
}

func TestClientsWithoutAPublicationAreExpired(t *testing.T) {
	h, dir := newHost(t), t.TempDir()
	unlock := filepath.Join(h.proc, "fs/nfsd/unlock_filesystem")
	h.write(unlock, "")
	dead, alive := h.client("3", "192.0.2.1:754", dir), h.client("4", "[2001:db8::2]:754", dir)
	err := h.Release(t.Context(), Held{Dir: dir, Alive: []netip.Addr{netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("192.0.2.9")}})
	if err == nil || !strings.Contains(err.Error(), "2001:db8::2") || !strings.Contains(err.Error(), "q") {
		t.Errorf("the client that is alive and its file are not named: %v", err)
	}
	if h.read(dead) != "expire\n" || h.read(alive) != "" {
		t.Errorf("ctl of the dead client is %q, of the other %q", h.read(dead), h.read(alive))
	}
	if got := h.read(unlock); got != escape(dir)+"\n" {
		t.Errorf("unlock_filesystem got %q", got)
	}
}

func TestClientsOnOtherFilesystemsAreLeft(t *testing.T) {
	h := newHost(t)
	ctl := h.client("3", "192.0.2.1:754", "/proc")
	if err := h.Release(t.Context(), Held{Dir: t.TempDir()}); err != nil {
		t.Error(err)
	}
	if h.read(ctl) != "" {
		t.Error("a client without state on the filesystem was expired")
	}
}

func TestWithoutAServerThereIsNothingToRelease(t *testing.T) {
	if err := newHost(t).Release(t.Context(), Held{Dir: t.TempDir(), Device: "/dev/zvol/none"}); err != nil {
		t.Error(err)
	}
}

func TestEscapedWords(t *testing.T) {
	for _, path := range []string{"/tank/a b", `/a\b`, "/tab\there", "/ü"} {
		if got := octal.Unescape(escape(path)); got != path || strings.ContainsAny(escape(path), " \t\n") {
			t.Errorf("%q became %q", path, got)
		}
	}
}

// exported puts an entry of dir into the caches; flushed is the second of the
// last flush.
func (h host) exported(dir string, flushed int64) {
	h.Helper()
	base := filepath.Join(h.proc, "net/rpc")
	h.write(filepath.Join(base, "nfsd.export/content"), "#path domain(flags)\n# "+escape(dir)+"\t127.0.0.1(rw,no_root_squash)\n")
	h.write(filepath.Join(base, "nfsd.fh/content"), "#domain fsidtype fsid [path]\n# 127.0.0.1 6 0x07f9 "+escape(dir)+"\n")
	for _, cache := range caches {
		h.write(filepath.Join(base, cache, "flush"), strconv.FormatInt(flushed, 10)+"\n")
	}
}

func TestStaleExportsAreFlushedWhenTheKernelCleans(t *testing.T) {
	h, dir := newHost(t), filepath.Join(t.TempDir(), "a b")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	flushed := time.Now().Unix() + 1
	h.exported(dir, flushed)
	flush := filepath.Join(h.proc, "net/rpc/nfsd.export/flush")
	at := make(chan int64, 1)
	go func() {
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if raw, err := os.ReadFile(flush); err == nil && string(raw) != strconv.FormatInt(flushed, 10)+"\n" {
				for _, cache := range caches {
					_ = os.WriteFile(filepath.Join(h.proc, "net/rpc", cache, "content"), []byte("#path domain(flags)\n"), 0o644)
				}
				at <- time.Now().Unix()
				return
			}
		}
		at <- 0
	}()
	if err := h.Release(t.Context(), Held{Dir: dir}); err != nil {
		t.Error(err)
	}
	if second := <-at; second <= flushed {
		t.Errorf("it was flushed in second %d, and the last flush was in %d", second, flushed)
	}
}

func TestAFlushFarAheadIsNotWaitedForBeyondTheDeadline(t *testing.T) {
	h, dir := newHost(t), t.TempDir()
	h.exported(dir, time.Now().Unix()+1000)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := h.Release(ctx, Held{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "export cache holds "+dir) {
		t.Errorf("%v", err)
	}
}
