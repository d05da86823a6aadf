package chap_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/file"
)

const uuid = "0123456789abcdef0123456789abcdef"

func TestMain(m *testing.M) {
	if path := os.Getenv("TARN_TEST_CREATE_KEY"); path != "" {
		k, err := chap.CreateKey(path)
		if err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Stdout.WriteString(k.Hex())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// wantMode fails unless path has exactly these permissions.
func wantMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := st.Mode().Perm(); got != want {
		t.Errorf("%s has mode %o, want %o", path, got, want)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// watch returns a function that reports whether nothing was made in dir since.
func watch(t *testing.T, dir string) (unused func() bool) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO); err != nil {
		t.Fatal(err)
	}
	return func() bool {
		_, err := unix.Read(fd, make([]byte, 4096))
		return errors.Is(err, unix.EAGAIN)
	}
}

func TestStoreKeepsOneRootOnlyFileAPublication(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0)) // modes must not depend on it
	t.Setenv("TMPDIR", t.TempDir())
	unused := watch(t, os.Getenv("TMPDIR"))
	s := chap.Store{Dir: filepath.Join(t.TempDir(), "state", "chap")}
	if _, ok, err := s.Get(uuid, "worker-1"); ok || err != nil {
		t.Errorf("before Put: %t, %v", ok, err)
	}
	for _, c := range []chap.Credentials{
		{User: "u", Password: "p"},
		{User: "u", Password: "p", MutualUser: "m", MutualPassword: `q"\ü`},
	} {
		if err := s.Put(uuid, "worker-1", c); err != nil {
			t.Fatal(err)
		}
		got, ok, err := s.Get(uuid, "worker-1")
		if !ok || err != nil || got != c {
			t.Errorf("another pair comes back: %t, %v", ok, err)
		}
	}
	wantMode(t, s.Dir, 0o700)
	wantMode(t, filepath.Join(s.Dir, uuid+".worker-1.json"), 0o600)
	if list := names(t, s.Dir); len(list) != 1 {
		t.Errorf("the directory holds %q", list)
	}
	if !unused() {
		t.Error("a secret was in TMPDIR")
	}
	if _, ok, _ := s.Get(uuid, "worker-2"); ok {
		t.Error("another node has the pair")
	}
	for range 2 {
		if err := s.Remove(uuid, "worker-1"); err != nil {
			t.Error(err)
		}
	}
	if _, ok, err := s.Get(uuid, "worker-1"); ok || err != nil {
		t.Errorf("after Remove: %t, %v", ok, err)
	}
}

func TestRemoveTakesAlsoWhatAPutThatWasCutOffLeft(t *testing.T) {
	s := chap.Store{Dir: t.TempDir()}
	for _, node := range []string{"worker-1", "worker-2"} {
		if err := s.Put(uuid, node, chap.Credentials{User: "u", Password: "p"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file.Unfinished(filepath.Join(s.Dir, uuid+".worker-1.json")), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(uuid, "worker-1"); err != nil {
		t.Fatal(err)
	}
	if list := names(t, s.Dir); len(list) != 1 || list[0] != uuid+".worker-2.json" {
		t.Errorf("the directory holds %q", list)
	}
}

func TestADamagedPairIsAnErrorThatShowsNothingOfIt(t *testing.T) {
	s := chap.Store{Dir: t.TempDir()}
	for _, content := range []string{"", "{", `{"User":"sentinel"}`, `{"Password":"sentinel"}`, "sentinel", "null", "[]"} {
		if err := os.WriteFile(filepath.Join(s.Dir, uuid+".worker-1.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		c, ok, err := s.Get(uuid, "worker-1")
		if ok || err == nil || c != (chap.Credentials{}) || strings.Contains(err.Error(), "sentinel") || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%q: %t, %v", content, ok, err)
		}
	}
}

// The format is that of files which earlier builds wrote.
func TestARecordedPairIsRead(t *testing.T) {
	s := chap.Store{Dir: t.TempDir()}
	raw := `{"User":"u","Password":"p","MutualUser":"m","MutualPassword":"q"}`
	if err := os.WriteFile(filepath.Join(s.Dir, uuid+".worker-1.json"), []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	want := chap.Credentials{User: "u", Password: "p", MutualUser: "m", MutualPassword: "q"}
	if c, ok, err := s.Get(uuid, "worker-1"); !ok || err != nil || c != want {
		t.Errorf("got %t, %v", ok, err)
	}
}

func TestKeysAreReadAndNeverShown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	past := time.Unix(1e9, 0)
	good := strings.Repeat("0f", chap.KeySize)
	for content, ok := range map[string]bool{
		good: true, good + "\n": true, " " + strings.ToUpper(good) + "\r\n": true,
		"": false, good[2:]: false, good + "00": false, "sentinel": false, strings.Repeat("zz", chap.KeySize): false, good + good: false,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := chap.ReadKey(path)
		if ok && (err != nil || k.Hex() != good) {
			t.Errorf("%q: %v", content, err)
		}
		if !ok && (fault.Kind(err) != fault.Invalid || k != nil || !strings.Contains(err.Error(), path) || content != "" && strings.Contains(err.Error(), content)) {
			t.Errorf("%q: %v", content, err)
		}
		// A key that is damaged is never replaced: every node would be locked
		// out. One that is there may be in a directory that cannot be written.
		if err := os.Chtimes(filepath.Dir(path), past, past); err != nil {
			t.Fatal(err)
		}
		if created, err := chap.CreateKey(path); (err == nil) != ok || created.Hex() != k.Hex() {
			t.Errorf("CreateKey on %q: %v", content, err)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != content {
			t.Errorf("%q became %q, %v", content, now, err)
		}
		if st, err := os.Stat(filepath.Dir(path)); err != nil || !st.ModTime().Equal(past) {
			t.Errorf("%q: something was written beside it, %v", content, err)
		}
	}
	if _, err := chap.ReadKey(path + ".none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestProcessesThatCreateAKeyAtOnceGetTheSame(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(t.TempDir(), "state", "master.key")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	keys := make([]string, 8)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), "TARN_TEST_CREATE_KEY="+path)
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("process %d: %v", i, err)
			}
			keys[i] = string(out)
		})
	}
	all.Wait()
	for _, k := range keys {
		if k != keys[0] || len(k) != 2*chap.KeySize {
			t.Errorf("the keys are %q", keys)
		}
	}
	wantMode(t, path, 0o600)
	wantMode(t, filepath.Dir(path), 0o700)
	if list := names(t, filepath.Dir(path)); len(list) != 1 {
		t.Errorf("the directory holds %q", list)
	}
}

func TestGoroutinesThatCreateAKeyAtOnceGetTheSame(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "master.key")
		var keys sync.Map
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				k, err := chap.CreateKey(path)
				if err != nil {
					t.Error(err)
				}
				keys.Store(k.Hex(), true)
			})
		}
		all.Wait()
		n := 0
		keys.Range(func(any, any) bool { n++; return true })
		if n != 1 {
			t.Errorf("%d different keys", n)
		}
	}
}
