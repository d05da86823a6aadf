package mount

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMountsReadsLinesThatOtherParsersDoNot(t *testing.T) {
	w := newWorld(t)
	w.set("mountinfo", ""+
		"22 1 0:5 / /dev rw,nosuid shared:2 master:1 - devtmpfs devtmpfs rw,size=4k,mode=755\n"+
		"23 1 0:40 / /empty\\040source rw shared:3 - tmpfs  rw\n"+ // mount -t tmpfs "" DIR
		"24 1 0:41 / /non\u00a0breaking rw - tmpfs none rw\n"+ // a blank that the kernel does not escape
		"25 1 0:42 /a\\134b /hash\\043 ro,relatime - nfs4 [2001:db8::1]:/tank/v rw,vers=4.2,addr=2001:db8::1\n"+
		"26 1 8:16 /gone//deleted /deleted rw - ext4 /dev/sdb rw\n")
	got, err := w.mounter(io.Discard).Mounts(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := []Info{
		{Source: "devtmpfs", Target: "/dev", Root: "/", FSType: "devtmpfs", Minor: 5, ID: 22, ParentID: 1,
			Options: []string{"rw", "nosuid"}, SuperOptions: []string{"rw", "size=4k", "mode=755"}},
		{Target: "/empty source", Root: "/", FSType: "tmpfs", Minor: 40, ID: 23, ParentID: 1,
			Options: []string{"rw"}, SuperOptions: []string{"rw"}},
		{Source: "none", Target: "/non\u00a0breaking", Root: "/", FSType: "tmpfs", Minor: 41, ID: 24, ParentID: 1,
			Options: []string{"rw"}, SuperOptions: []string{"rw"}},
		{Source: "[2001:db8::1]:/tank/v", Target: "/hash#", Root: `/a\b`, FSType: "nfs4", Minor: 42, ID: 25, ParentID: 1,
			Options: []string{"ro", "relatime"}, SuperOptions: []string{"rw", "vers=4.2", "addr=2001:db8::1"}},
		{Source: "/dev/sdb", Target: "/deleted", Root: "/gone//deleted", FSType: "ext4", Major: 8, Minor: 16, ID: 26, ParentID: 1,
			Options: []string{"rw"}, SuperOptions: []string{"rw"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestMountsOfThisProcess(t *testing.T) {
	got, err := New(runner(io.Discard)).Mounts(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range got {
		if i.Target == "/proc" && i.FSType == "proc" {
			return
		}
	}
	t.Errorf("the real table has no /proc: %v", got)
}

func TestReadOnlyIsTheMountOrItsFilesystem(t *testing.T) {
	for _, c := range []struct {
		options, super []string
		want           bool
	}{
		{[]string{"rw"}, []string{"rw"}, false},
		{[]string{"ro", "relatime"}, []string{"rw"}, true},
		{[]string{"rw"}, []string{"ro", "data=ordered"}, true}, // errors=remount-ro
		{[]string{"rw", "errors=remount-ro"}, []string{"rw"}, false},
	} {
		if got := (Info{Options: c.options, SuperOptions: c.super}).ReadOnly(); got != c.want {
			t.Errorf("ReadOnly of %v %v is %v", c.options, c.super, got)
		}
	}
}

func TestAtFollowsLinksAboveTheTargetOnly(t *testing.T) {
	w := newWorld(t)
	real := filepath.Join(t.TempDir(), "real")
	if err := os.MkdirAll(filepath.Join(real, "pods"), 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(filepath.Dir(real), "link")
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	w.add("mountinfo", "30 1 0:50 / "+real+"/pods/a rw - tmpfs older rw")
	w.add("mountinfo", "31 30 0:51 / "+real+"/pods/a rw - tmpfs newer rw")
	w.add("mountinfo", "32 1 0:52 / "+real+"/pods/ab rw - tmpfs other rw")
	m := w.mounter(io.Discard)
	for _, path := range []string{real + "/pods/a", link + "/pods/a", link + "/pods/./a/"} {
		got, err := m.At(context.Background(), path)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 || got[0].Source != "older" || got[1].Source != "newer" {
			t.Errorf("At(%s) = %v", path, got)
		}
	}
	if got, err := m.At(context.Background(), link+"/pods"); err != nil || len(got) != 0 {
		t.Errorf("At of a plain directory = %v, %v", got, err)
	}
}

func TestLocateFindsTheCoveringMount(t *testing.T) {
	table := []Info{
		{Target: "/", Root: "/", Major: 8, Minor: 1},
		{Target: "/dev", Root: "/", Minor: 5},
		{Target: "/data", Root: "/sub", Major: 8, Minor: 2},
		{Target: "/data", Root: "/", Major: 8, Minor: 3}, // covers the one before
		{Target: "/database", Root: "/", Major: 8, Minor: 4},
	}
	for path, want := range map[string]place{
		"/dev/sda":     {minor: 5, root: "/sda"},
		"/data":        {major: 8, minor: 3, root: "/"},
		"/data/x/y":    {major: 8, minor: 3, root: "/x/y"},
		"/datab":       {major: 8, minor: 1, root: "/datab"},
		"/database/..": {major: 8, minor: 1, root: "/"},
	} {
		if got, ok := locate(table, path); !ok || got != want {
			t.Errorf("locate(%s) = %v, %v, want %v", path, got, ok, want)
		}
	}
}
