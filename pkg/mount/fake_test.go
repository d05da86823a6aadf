package mount

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/run"
)

// The fakes are this test binary under the name of a tool. They act on a
// directory that $TARN_FAKE names: mountinfo is the kernel's table, NAME.mode
// how a tool misbehaves, calls what was started.
var fakes = map[string]func(world, []string) int{
	"mount": fakeMount, "umount": fakeUmount, "blkid": fakeBlkid, "blockdev": fakeBlockdev,
	"e2fsck": fakeE2fsck, "resize2fs": fakeResize2fs, "dd": fakeDd,
	"mkfs.ext4": fakeMkfs, "mkfs.ext3": fakeMkfs, "mkfs.xfs": fakeMkfs,
}

func TestMain(m *testing.M) {
	tool := filepath.Base(os.Args[0])
	if fake, ok := fakes[tool]; ok {
		w := world(os.Getenv("TARN_FAKE"))
		w.add("calls", tool+" "+strings.Join(os.Args[1:], " "))
		if w.mode(tool) == "hang" {
			w.add("pids", fmt.Sprint(os.Getpid()))
			time.Sleep(600 * time.Second)
		}
		os.Exit(fake(w, os.Args[1:]))
	}
	code := m.Run()
	if err := afterAll(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// afterAll takes down what all tests shared.
var afterAll = func() error { return nil }

// world is the directory of the fakes.
type world string

func newWorld(t *testing.T) world {
	t.Helper()
	w := world(t.TempDir())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(string(w), "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for tool := range fakes {
		if err := os.Symlink(self, filepath.Join(bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	t.Setenv("TARN_FAKE", string(w))
	t.Setenv("GORACE", "atexit_sleep_ms=0") // else each fake lasts a second under the race detector
	w.set("mountinfo", "1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n")
	return w
}

// without removes a tool.
func (w world) without(t *testing.T, tool string) {
	t.Helper()
	if err := os.Remove(filepath.Join(string(w), "bin", tool)); err != nil {
		t.Fatal(err)
	}
}

func (w world) path(name string) string { return filepath.Join(string(w), name) }

func (w world) get(name string) string {
	b, _ := os.ReadFile(w.path(name))
	return string(b)
}

func (w world) set(name, content string) {
	if err := os.WriteFile(w.path(name), []byte(content), 0o600); err != nil {
		panic(err)
	}
}

func (w world) add(name, line string) {
	f, err := os.OpenFile(w.path(name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, line)
}

func (w world) mode(tool string) string { return w.get(tool + ".mode") }

// calls returns the started commands that begin with the tool's name.
func (w world) calls(tool string) []string {
	var list []string
	for line := range strings.Lines(w.get("calls")) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, tool+" ") {
			list = append(list, line)
		}
	}
	return list
}

func (w world) mounter(log io.Writer) *Mounter {
	m := New(runner(log))
	m.table = w.path("mountinfo")
	return m
}

func (w world) filesystems() *Filesystems {
	f := NewFilesystems(runner(io.Discard))
	f.table = w.path("mountinfo")
	return f
}

func runner(log io.Writer) *run.Runner {
	l := logrus.New()
	l.SetOutput(log)
	l.SetLevel(logrus.TraceLevel)
	return run.New(l)
}

func complain(code int, format string, args ...any) int {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	return code
}

// fakeMount does what mount(8) does with the table: a bind shows its source's
// filesystem, a remount replaces the flags of the topmost mount.
func fakeMount(w world, args []string) int {
	if mode := w.mode("mount"); mode == "lie" {
		return 0
	} else if mode == "echo" {
		return complain(32, "mount: unknown option in %q", strings.Join(args, " "))
	} else if mode == "refused" {
		return complain(32, "mount.nfs: Connection refused")
	}
	var fsType string
	var options, operands []string
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "-t":
			i++
			fsType = args[i]
		case args[i] == "-o":
			i++
			options = strings.Split(args[i], ",")
		case strings.HasPrefix(args[i], "-"):
			return complain(1, "mount: bad usage %s", args[i])
		default:
			operands = append(operands, args[i])
		}
	}
	if len(operands) != 2 {
		return complain(1, "mount: bad usage")
	}
	source, target := operands[0], operands[1]
	table, err := readTable(w.path("mountinfo"))
	if err != nil {
		return complain(32, "%v", err)
	}
	flags := "rw"
	if slices.Contains(options, "ro") {
		flags = "ro"
	}
	for _, o := range options {
		if slices.Contains(perMount, o) {
			flags += "," + o
		}
	}
	switch {
	case slices.Contains(options, "remount"):
		if w.mode("mount") == "no remount" {
			return complain(32, "mount: %s: cannot remount read-only.", target)
		}
		lines := strings.Split(strings.TrimSpace(w.get("mountinfo")), "\n")
		for i := len(lines) - 1; i >= 0; i-- {
			if f := strings.Split(lines[i], " "); f[4] == target {
				f[5] = flags
				if w.mode("mount") == "idle remount" {
					return 0
				}
				lines[i] = strings.Join(f, " ")
				w.set("mountinfo", strings.Join(lines, "\n")+"\n")
				return 0
			}
		}
		return complain(32, "mount: %s: mount point not mounted or bad option.", target)
	case slices.Contains(options, "bind"):
		from, ok := locate(table, source)
		if !ok {
			return complain(32, "mount: %s: special device does not exist.", source)
		}
		if w.mode("mount") == "elsewhere" {
			from.root = "/elsewhere"
		}
		flags := "rw,nosuid,nodev,relatime"
		w.add("mountinfo", fmt.Sprintf("%d 1 %d:%d %s %s %s - ext4 /dev/x rw", 100+len(table), from.major, from.minor, from.root, target, flags))
	default:
		if strings.HasPrefix(fsType, "nfs") {
			fsType = "nfs4"
		}
		w.add("mountinfo", fmt.Sprintf("%d 1 0:%d / %s %s - %s %s rw", 100+len(table), 50+len(table), target, flags, fsType, source))
	}
	return 0
}

// fakeUmount takes the topmost mount off the table.
func fakeUmount(w world, args []string) int {
	target := args[len(args)-1]
	force := slices.Contains(args, "--force")
	switch w.mode("umount") {
	case "lie":
		return 0
	case "fails":
		return complain(32, "umount: %s: something went wrong", target)
	case "busy":
		return complain(32, "umount: %s: target is busy.", target)
	case "dead server":
		if !force {
			w.add("pids", fmt.Sprint(os.Getpid()))
			time.Sleep(600 * time.Second)
		}
	case "done but failed":
		defer complain(32, "umount: something else went wrong")
	}
	if !slices.Contains(args, "--no-canonicalize") {
		return complain(1, "this umount would look at the mount point")
	}
	lines := strings.Split(strings.TrimSpace(w.get("mountinfo")), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.Split(lines[i], " ")[4] == target {
			w.set("mountinfo", strings.Join(slices.Delete(lines, i, i+1), "\n")+"\n")
			if w.mode("umount") == "done but failed" {
				return 32
			}
			return 0
		}
	}
	return complain(32, "umount: %s: not mounted.", target)
}
