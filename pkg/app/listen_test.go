package app

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// socketDir is a short path: t.TempDir may be longer than a socket's may be.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tarn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// answers reports whether l takes a connection made at path.
func answers(t *testing.T, l net.Listener, path string) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	a, err := l.Accept()
	if err != nil {
		t.Error(err)
		return
	}
	_ = a.Close()
}

func TestTheSocketIsForRootAloneFromTheFirstMoment(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(socketDir(t), "made", "csi.sock")
	stop := make(chan struct{})
	var seen, made sync.Map // modes of the socket, and of files made meanwhile
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if st, err := os.Lstat(path); err == nil {
					seen.Store(st.Mode(), true)
				}
			}
		}
	})
	other := socketDir(t)
	watch.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if os.Mkdir(other+"/d", 0o755) == nil {
					st, _ := os.Stat(other + "/d")
					made.Store(st.Mode().Perm(), true)
					_ = os.Remove(other + "/d")
				}
			}
		}
	})
	for range 200 {
		l, err := listen("unix://" + path)
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Lstat(path)
		if err != nil || st.Mode() != fs.ModeSocket|0o600 {
			t.Fatalf("%v, %v", st.Mode(), err)
		}
		_ = l.Close()
	}
	close(stop)
	watch.Wait()
	seen.Range(func(mode, _ any) bool {
		if mode != fs.ModeSocket|0o600 {
			t.Errorf("for a moment it had the mode %v", mode)
		}
		return true
	})
	made.Range(func(mode, _ any) bool {
		if mode != fs.FileMode(0o755) {
			t.Errorf("what others make meanwhile has the mode %v", mode)
		}
		return true
	})
}

func TestAStaleSocketIsReplacedAndALiveOneIsNot(t *testing.T) {
	path := filepath.Join(socketDir(t), "csi.sock")
	stale, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = stale.Close()

	live, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	if _, err := listen("unix:" + path); fault.Kind(err) != fault.Precondition || !strings.Contains(err.Error(), path) {
		t.Errorf("a live socket: %v", err)
	}
	// The question left a connection that was closed at once.
	if c, err := live.Accept(); err != nil {
		t.Error(err)
	} else {
		_ = c.Close()
	}
	answers(t, live, path)
}

func TestTheSocketGoesWithTheListener(t *testing.T) {
	path := filepath.Join(socketDir(t), "csi.sock")
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if _, err := os.Lstat(path); err == nil {
		t.Error("it is still there")
	}
}

func TestWhatIsNoSocketIsRefusedAndLeftAlone(t *testing.T) {
	dir := socketDir(t)
	path := filepath.Join(dir, "csi.sock")
	for name, create := range map[string]func() error{
		"file":      func() error { return os.WriteFile(path, []byte("precious"), 0o600) },
		"directory": func() error { return os.Mkdir(path, 0o700) },
		"fifo":      func() error { return syscall.Mkfifo(path, 0o600) },
		"symlink":   func() error { return os.Symlink(dir+"/elsewhere", path) },
	} {
		if err := create(); err != nil {
			t.Fatal(err)
		}
		before, _ := os.Lstat(path)
		if _, err := listen(path); fault.Kind(err) != fault.Precondition || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) || before.Mode() != after.Mode() || before.Size() != after.Size() {
			t.Errorf("%s was changed: %v, %v", name, after, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEndpointsThatCannotBeListenedOn(t *testing.T) {
	dir := socketDir(t)
	if _, err := listen("unix://" + dir + "/" + strings.Repeat("s", 108)); fault.Kind(err) != fault.Invalid || !strings.Contains(err.Error(), "107") {
		t.Errorf("too long: %v", err)
	}
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(dir + "/file/csi.sock"); err == nil || !strings.Contains(err.Error(), dir+"/file") {
		t.Errorf("below a file: %v", err)
	}
	long := dir + "/" + strings.Repeat("s", 107-len(dir)-1)
	l, err := listen(long)
	if err != nil {
		t.Fatalf("the longest path: %v", err)
	}
	defer l.Close()
	answers(t, l, long)
}
