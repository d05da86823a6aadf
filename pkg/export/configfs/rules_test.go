package configfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/tarn-csi/tarn/pkg/export/configfs"
)

// The rules below are what the kernel's target subsystem refuses and lets pass.
// They run against the fake here and against the kernel in the guest.

// rig is a configfs with the target modules loaded, and two block devices that
// nothing uses.
type rig struct {
	*testing.T
	fs      configfs.FS
	devices [2]string
	// listen has another process listen at ADDRESS:PORT until the returned
	// function is called.
	listen func(address string) func()
}

// The paths that the rules use.
const (
	hba    = "target/core/iblock_1999999999"
	back   = hba + "/b"
	back2  = hba + "/c"
	iqn    = "target/iscsi/iqn.2026-01.io.example:rules"
	tpg    = iqn + "/tpgt_1"
	lun    = tpg + "/lun/lun_1"
	portal = tpg + "/np/127.0.0.1:3299"
	acl    = tpg + "/acls/iqn.2026-01.io.example:node"
	mapped = acl + "/lun_1"
)

// must fails the test when a preparation was refused.
func (r *rig) must(errs ...error) {
	r.Helper()
	for _, err := range errs {
		if err != nil {
			r.Fatalf("preparation: %v", err)
		}
	}
}

// backstore prepares a configured but not enabled backstore.
func (r *rig) backstore(path, device string) {
	r.Helper()
	if err := r.fs.Mkdir(hba); err != nil && !errors.Is(err, fs.ErrExist) {
		r.must(err)
	}
	r.must(r.fs.Mkdir(path), r.fs.Write(path+"/control", "udev_path="+device), r.fs.Write(path+"/udev_path", device))
}

// enabled prepares an enabled backstore.
func (r *rig) enabled() {
	r.Helper()
	r.backstore(back, r.devices[0])
	r.must(r.fs.Write(back+"/wwn/vpd_unit_serial", "0123456789abcdef"), r.fs.Write(back+"/enable", "1"))
}

// group prepares an empty portal group.
func (r *rig) group() {
	r.Helper()
	r.must(r.fs.Mkdir(iqn), r.fs.Mkdir(tpg))
}

// linked prepares a portal group whose LUN maps the backstore.
func (r *rig) linked() {
	r.Helper()
	r.enabled()
	r.group()
	r.must(r.fs.Mkdir(lun), r.fs.Symlink(back, lun+"/b"))
}

// access prepares a complete target with an ACL.
func (r *rig) access() {
	r.Helper()
	r.linked()
	r.must(r.fs.Mkdir(portal), r.fs.Mkdir(acl), r.fs.Mkdir(mapped), r.fs.Symlink(lun, mapped+"/l"),
		r.fs.Write(tpg+"/enable", "1"))
}

// value reads an attribute that must be there.
func (r *rig) value(path string) string {
	r.Helper()
	v, err := r.fs.Read(path)
	r.must(err)
	return v
}

// expect turns a wrong value into an error.
func (r *rig) expect(path, want string) error {
	if got := r.value(path); got != want {
		return fmt.Errorf("%s is %q, want %q", path, got, want)
	}
	return nil
}

// clear removes whatever a rule has made, in the order in which that works.
func (r *rig) clear() {
	_ = r.fs.Write(tpg+"/enable", "0")
	for _, dir := range []string{tpg + "/acls", tpg + "/lun", tpg + "/np", iqn, hba} {
		r.empty(dir)
	}
	for _, dir := range []string{iqn, hba} {
		if err := r.fs.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.Errorf("left behind: %v", err)
		}
	}
}

// empty removes what can be removed below dir.
func (r *rig) empty(dir string) {
	list, _ := r.fs.List(dir)
	for _, e := range list {
		p := dir + "/" + e.Name
		switch e.Kind {
		case configfs.Link:
			_ = r.fs.Unlink(p)
		case configfs.Directory:
			if !strings.Contains(e.Name, "statistics") {
				r.empty(p)
			}
			_ = r.fs.Rmdir(p)
		}
	}
}

func has(list []configfs.Entry, want configfs.Entry) bool {
	for _, e := range list {
		if e == want {
			return true
		}
	}
	return false
}

func testRules(t *testing.T, newRig func(t *testing.T) *rig) {
	for _, group := range [][]rule{treeRules, backstoreRules, targetRules, accessRules} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				r := newRig(t)
				r.T = t
				defer r.clear()
				err := c.try(r)
				if c.want == nil && err != nil {
					t.Fatalf("refused: %v", err)
				}
				if c.want != nil && !errors.Is(err, c.want) {
					t.Fatalf("got %v, want %v", err, c.want)
				}
				var pathErr *fs.PathError
				if c.want != nil && !errors.As(err, &pathErr) {
					t.Fatalf("%T carries no path", err)
				}
			})
		}
	}
}

// rule is one operation after some preparation. A nil want lets it pass.
type rule struct {
	name string
	try  func(r *rig) error
	want error
}

var treeRules = []rule{
	{"writing an attribute that does not exist makes no file", func(r *rig) error {
		r.group()
		return r.fs.Write(tpg+"/attrib/no_such_switch", "1")
	}, syscall.ENOENT},
	{"writing below a directory that does not exist", func(r *rig) error {
		return r.fs.Write(tpg+"/enable", "1")
	}, syscall.ENOENT},
	{"writing an attribute that only tells", func(r *rig) error {
		r.enabled()
		return r.fs.Write(back+"/info", "1")
	}, syscall.EACCES},
	{"writing a directory", func(r *rig) error {
		r.group()
		return r.fs.Write(tpg+"/attrib", "1")
	}, syscall.EISDIR},
	{"reading an attribute that only takes", func(r *rig) error {
		r.enabled()
		_, err := r.fs.Read(back + "/control")
		return err
	}, syscall.EACCES},
	{"reading what does not exist", func(r *rig) error {
		_, err := r.fs.Read(tpg + "/enable")
		return err
	}, syscall.ENOENT},
	{"listing what does not exist", func(r *rig) error {
		_, err := r.fs.List(iqn)
		return err
	}, syscall.ENOENT},
	{"listing an attribute", func(r *rig) error {
		r.group()
		_, err := r.fs.List(tpg + "/enable")
		return err
	}, syscall.ENOTDIR},
	{"a value with a newline never reaches the kernel", func(r *rig) error {
		r.access()
		return r.fs.Write(acl+"/auth/password", "secret\n")
	}, syscall.EINVAL},
	{"an empty value never reaches the kernel", func(r *rig) error {
		r.access()
		return r.fs.Write(acl+"/auth/password", "")
	}, syscall.EINVAL},
	{"a value longer than a page never reaches the kernel", func(r *rig) error {
		r.enabled()
		return r.fs.Write(back+"/alias", strings.Repeat("a", configfs.MaxValueBytes+1))
	}, syscall.EINVAL},
	{"a path that leaves the tree", func(r *rig) error {
		return r.fs.Mkdir("target/../../x")
	}, syscall.EINVAL},
	{"mkdir below a parent that does not exist", func(r *rig) error {
		return r.fs.Mkdir(tpg)
	}, syscall.ENOENT},
	{"mkdir of what exists", func(r *rig) error {
		r.group()
		return r.fs.Mkdir(tpg)
	}, syscall.EEXIST},
	{"mkdir of an unknown fabric", func(r *rig) error { return r.fs.Mkdir("target/nofabric") }, syscall.EINVAL},
	{"mkdir of target/iscsi when it is there", func(r *rig) error { return r.fs.Mkdir("target/iscsi") }, syscall.EEXIST},
	{"mkdir where the kernel has no items", func(r *rig) error {
		r.group()
		return r.fs.Mkdir(tpg + "/attrib/x")
	}, syscall.EPERM},
	{"mkdir in an attribute", func(r *rig) error {
		r.group()
		return r.fs.Mkdir(tpg + "/enable/x")
	}, syscall.ENOTDIR},
	{"mkdir of a name over 255 bytes", func(r *rig) error {
		r.must(r.fs.Mkdir(hba))
		return r.fs.Mkdir(hba + "/" + strings.Repeat("b", 256))
	}, syscall.ENAMETOOLONG},
	{"rmdir of what does not exist", func(r *rig) error { return r.fs.Rmdir(iqn) }, syscall.ENOENT},
	{"rmdir of a default group", func(r *rig) error {
		r.group()
		return r.fs.Rmdir(tpg + "/attrib")
	}, syscall.EPERM},
	{"rmdir of an attribute", func(r *rig) error {
		r.group()
		return r.fs.Rmdir(tpg + "/enable")
	}, syscall.ENOTDIR},
	{"rmdir of a link", func(r *rig) error {
		r.linked()
		return r.fs.Rmdir(lun + "/b")
	}, syscall.ENOTDIR},
	{"unlink of an attribute", func(r *rig) error {
		r.group()
		return r.fs.Unlink(tpg + "/enable")
	}, syscall.EPERM},
	{"unlink of a directory", func(r *rig) error {
		r.group()
		return r.fs.Unlink(tpg)
	}, syscall.EISDIR},
	{"unlink of what does not exist", func(r *rig) error { return r.fs.Unlink(lun + "/b") }, syscall.ENOENT},
	{"symlink where the kernel has no links", func(r *rig) error {
		r.linked()
		return r.fs.Symlink(back, tpg+"/np/b")
	}, syscall.EPERM},
	{"symlink to what does not exist", func(r *rig) error {
		r.group()
		r.must(r.fs.Mkdir(lun))
		return r.fs.Symlink(back, lun+"/b")
	}, syscall.ENOENT},
	{"symlink that exists", func(r *rig) error {
		r.linked()
		return r.fs.Symlink(back, lun+"/b")
	}, syscall.EEXIST},
	{"a link lists with the path that it names", func(r *rig) error {
		r.access()
		list, err := r.fs.List(lun)
		r.must(err)
		inACL, err := r.fs.List(mapped)
		r.must(err)
		if !has(list, configfs.Entry{Name: "b", Kind: configfs.Link, Target: back}) ||
			!has(inACL, configfs.Entry{Name: "l", Kind: configfs.Link, Target: lun}) ||
			!has(inACL, configfs.Entry{Name: "write_protect", Kind: configfs.Attribute}) {
			return fmt.Errorf("%v, %v", list, inACL)
		}
		return nil
	}, nil},
	{"attributes and default groups come with mkdir", func(r *rig) error {
		r.access()
		for dir, names := range map[string]string{
			back:   "control enable info udev_path alias attrib/ wwn/ alua/ pr/ statistics/",
			tpg:    "enable attrib/ auth/ param/ lun/ np/ acls/",
			lun:    "statistics/ alua_tg_pt_offline",
			acl:    "info tag attrib/ auth/ param/ fabric_statistics/",
			mapped: "write_protect statistics/",
			portal: "iser",
			iqn:    "fabric_statistics/",
		} {
			list, err := r.fs.List(dir)
			r.must(err)
			for name := range strings.FieldsSeq(names) {
				e := configfs.Entry{Name: strings.TrimSuffix(name, "/"), Kind: configfs.Attribute}
				if e.Name != name {
					e.Kind = configfs.Directory
				}
				if !has(list, e) {
					return fmt.Errorf("no %s in %s: %v", name, dir, list)
				}
			}
		}
		return nil
	}, nil},
}
