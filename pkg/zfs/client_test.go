package zfs

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/run"
)

// script answers commands by what they begin with.
type script struct {
	t       *testing.T
	answers map[string]string // "zfs get -Hp -o ..." to output; "!" begins a complaint
	exact   map[string]string // the same for whole commands
	lines   []string
}

func (s *script) Run(_ context.Context, c run.Cmd) ([]byte, error) {
	line := c.Tool + " " + strings.Join(c.Args, " ")
	s.lines = append(s.lines, line)
	answer, ok := s.exact[line]
	for begin, text := range s.answers {
		if !ok && strings.HasPrefix(line, begin) {
			answer, ok = text, true
		}
	}
	if !ok {
		s.t.Errorf("unexpected: %s", line)
		return nil, errors.New("unexpected")
	}
	if complaint, bad := strings.CutPrefix(answer, "!"); bad {
		return nil, &run.Error{Line: line, Code: 1, Stderr: complaint, Err: errors.New("exit status 1")}
	}
	return []byte(answer), nil
}

func (s *script) Pipe(ctx context.Context, from, to run.Cmd) ([]byte, error) {
	_, fromErr := s.Run(ctx, from)
	out, toErr := s.Run(ctx, to)
	if fromErr != nil || toErr != nil {
		return out, &run.PipeError{From: fromErr, To: toErr}
	}
	return out, nil
}

func (s *script) Track(context.Context, string, string, string) func(error) { return func(error) {} }

func scripted(t *testing.T, answers map[string]string) (*Client, *script) {
	t.Helper()
	s := &script{t: t, answers: answers}
	c, err := New(s, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

func TestReadingTakesOneCommand(t *testing.T) {
	c, s := scripted(t, map[string]string{"zfs get -Hp -o name,property,value,source": "tank/v\ttarn:name\tx\tlocal\n"})
	if _, err := c.Get(t.Context(), "tank/v"); err != nil || len(s.lines) != 1 {
		t.Errorf("%v, after %q", err, s.lines)
	}
	if _, err := c.Children(t.Context(), "tank"); err != nil || len(s.lines) != 2 {
		t.Errorf("%v, after %q", err, s.lines)
	}
}

func TestReceivedValuesAreReadTwice(t *testing.T) {
	c, s := scripted(t, map[string]string{
		"zfs get -Hp -o name,property,value,source": "tank/v\torg:note\tx\treceived\ntank/v\ttarn:node.evil\t1\tlocal\ntank/v\tz:z\ty\treceived\n",
		"zfs get -Hp -o name,property,source":       "tank/v\torg:note\treceived\n",
	})
	d, err := c.Get(t.Context(), "tank/v")
	if err != nil || len(s.lines) != 2 {
		t.Fatalf("%v, after %q", err, s.lines)
	}
	if len(d.LocalPrefix("tarn:node.")) > 0 {
		t.Error("a forged publication counts")
	}
}

func TestSnapshotsCannotBeForged(t *testing.T) {
	c, s := scripted(t, map[string]string{
		"zfs get -Hp -o name,property,value,source": "tank/v@s\torg:note\tx\treceived\ntank/w@s\ttarn:name\tevil\tlocal\ntank/v@s\tz:z\ty\treceived\n" +
			"tank/w@s\ttarn:name\tgood\tlocal\n",
		"zfs get -Hp -o name,property,source": "tank/v@s\torg:note\treceived\ntank/w@s\ttarn:name\tlocal\n",
	})
	list, err := c.Snapshots(t.Context(), "tank")
	if err != nil || len(s.lines) != 2 || len(list) != 2 {
		t.Fatalf("%v, %v, after %q", list, err, s.lines)
	}
	for _, d := range list {
		if name, ok := d.Own("tarn:name"); ok {
			t.Errorf("%s has a name that several claim: %s", d.Name, name)
		}
	}
	// A line about what is no snapshot is none that zfs prints.
	c, s = scripted(t, map[string]string{"zfs get -Hp -o name,property,value,source": "tank/v@s\ttarn:name\tx\tlocal\ntank/v\ttarn:name\ty\tlocal\n", "zfs get -Hp -o name,property,source": "tank/v@s\ttarn:name\tlocal\n"})
	if list, err = c.Snapshots(t.Context(), "tank"); err != nil || len(s.lines) != 2 || len(list) != 1 {
		t.Fatalf("%v, %v, after %q", list, err, s.lines)
	}
}

func TestListingSnapshotsTakesOneCommand(t *testing.T) {
	c, s := scripted(t, map[string]string{"zfs get": "tank/csi/v@s\ttarn:name\tx\tlocal\ntank/csi@s\ttarn:name\tx\tlocal\n"})
	list, err := c.Snapshots(t.Context(), "tank/csi")
	if err != nil || len(s.lines) != 1 || len(list) != 1 || list[0].Name != "tank/csi/v@s" {
		t.Errorf("%v, %v, after %q", list, err, s.lines)
	}
}

func TestCloneTakesOneCommandUnlessAReservationIsRefused(t *testing.T) {
	c, s := scripted(t, map[string]string{"zfs clone": ""})
	err := c.Clone(t.Context(), "tank/z@s", Spec{Name: "tank/c", VolumeBytes: 1 << 20, Properties: []Setting{{"tarn:x", "1"}}})
	if want := "zfs clone -o volsize=1048576 -o refreservation=auto -o tarn:x=1 tank/z@s tank/c"; err != nil || len(s.lines) != 1 || s.lines[0] != want {
		t.Errorf("%v, after %q", err, s.lines)
	}
	// What has another origin is not what was just made.
	c, s = scripted(t, map[string]string{"zfs clone": "!cannot create 'tank/c': out of space", "zfs get": "tank/c\torigin\ttank/y@s\t-\n"})
	if err := c.Clone(t.Context(), "tank/z@s", Spec{Name: "tank/c", VolumeBytes: 1 << 20}); !errors.Is(err, ErrNoSpace) || len(s.lines) != 2 {
		t.Errorf("%v, after %q", err, s.lines)
	}
}

func TestSnapshotSaysWhichDatasetIsMissing(t *testing.T) {
	c, _ := scripted(t, map[string]string{"zfs snapshot": "!cannot open 'tank/w': dataset does not exist\nusage:\n\tsnapshot [-r]"})
	if err := c.Snapshot(t.Context(), SnapshotSpec{Names: []string{"tank/v@s", "tank/w@s"}}); !errors.Is(err, ErrNotExist) {
		t.Error(err)
	}
	if err := c.Snapshot(t.Context(), SnapshotSpec{Names: []string{"tank/v@s"}}); err == nil || errors.Is(err, ErrNotExist) {
		t.Error(err)
	}
}

// Which of two datasets zfs prints first is not said.
func TestADatasetAndItsParentTakeOneCommand(t *testing.T) {
	c, s := scripted(t, map[string]string{"zfs get -Hp -o name,property,value,source all tank/v tank": "tank\ttarn:driver\tx\tlocal\ntank/v\ttarn:name\ty\tlocal\n"})
	d, above, err := c.GetWithParent(t.Context(), "tank/v")
	if err != nil || len(s.lines) != 1 || d.Name != "tank/v" || above.Name != "tank" {
		t.Errorf("%s, %s, %v, after %q", d.Name, above.Name, err, s.lines)
	}
	c, _ = scripted(t, map[string]string{"zfs get": "tank/v\ttarn:name\ty\tlocal\n"})
	if _, _, err := c.GetWithParent(t.Context(), "tank/v"); err == nil {
		t.Error("a parent that is not in the output was read")
	}
}

func TestNotExistNeedsAParentThatExists(t *testing.T) {
	missing := "!cannot open 'tank/csi/v': dataset does not exist"
	c, _ := scripted(t, map[string]string{"zfs get": missing, "zfs list": "tank/csi\n"})
	if _, err := c.Get(t.Context(), "tank/csi/v"); !errors.Is(err, ErrNotExist) || errors.Is(err, ErrNoParent) {
		t.Error(err)
	}
	c, _ = scripted(t, map[string]string{"zfs get": missing, "zfs list": "!cannot open 'tank/csi': dataset does not exist"})
	if _, err := c.Get(t.Context(), "tank/csi/v"); errors.Is(err, ErrNotExist) || !errors.Is(err, ErrNoParent) {
		t.Error(err)
	}
	c, _ = scripted(t, map[string]string{"zfs get": missing, "zfs list": "!cannot open 'tank/csi': pool I/O is currently suspended"})
	if _, err := c.Get(t.Context(), "tank/csi/v"); errors.Is(err, ErrNotExist) || !errors.Is(err, ErrSuspended) {
		t.Error(err)
	}
}

func TestRenameOfAZvolWhoseDeviceIsNotThereYet(t *testing.T) {
	c, s := scripted(t, map[string]string{
		"zfs rename -u": "!cannot open 'tank/z': operation not applicable to datasets of this type",
		"zfs rename t":  "",
	})
	if err := c.Rename(t.Context(), "tank/z", "tank/y"); err != nil || len(s.lines) != 2 {
		t.Errorf("%v, after %q", err, s.lines)
	}
	if err := c.Rename(t.Context(), "tank/v@s", "tank/v@t"); err != nil || len(s.lines) != 3 {
		t.Errorf("%v, after %q", err, s.lines)
	}
}

func TestDevicePathWritesBlanksAsUdevDoes(t *testing.T) {
	if got := DevicePath("tank/a b/c"); got != "/dev/zvol/tank/a+b/c" {
		t.Error(got)
	}
}

func TestPartialNames(t *testing.T) {
	for name, want := range map[string]string{"tank/a b/csi/v": "tank/a b/csi/.copy.v", "tank": ".copy.tank"} {
		part := PartialName(name)
		back, ok := PartialOf(part)
		if part != want || back != name || !ok {
			t.Errorf("%s becomes %s, and that %s, %t", name, part, back, ok)
		}
		if _, ok := PartialOf(name); ok {
			t.Errorf("%s is taken for a partial one", name)
		}
	}
}
