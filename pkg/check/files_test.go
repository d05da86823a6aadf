package check

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/run"
)

// stat is a line of /proc/PID/stat of a process that was started so many seconds
// after the boot.
func stat(name, state, ticks string) string {
	return "812 (" + name + ") " + state + " 2 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 " + ticks + " 0 0 18446744073709551615 0\n"
}

// storageFiles is a storage host on which all is well.
var storageFiles = files{
	"sys/module/zfs/version":        "2.1.11-1\n",
	"proc/fs/nfsd/threads":          "8\n",
	"proc/fs/nfsd/portlist":         "rdma 20049\ntcp 2049\n",
	"proc/fs/nfsd/versions":         "-2 +3 +4 +4.1 +4.2\n",
	"proc/812/stat":                 stat("nfsd", "I", "2000"),
	"proc/813/stat":                 stat("rpc.mountd", "S", "1990"),
	"proc/stat":                     "cpu  1 2 3\nbtime 1764000000\nprocesses 99\n",
	"proc/self/mountinfo":           mountinfoText,
	"proc/spl/kstat/zfs/tank/state": "ONLINE\n",
	// Imported 10 s after the boot, 10 s before the server.
	"proc/spl/kstat/zfs/tank/iostats": "34 1 0x01 28 7616 10000000000 99000000000\nname type data\n",
	"var/lib/nfs/etab":                etabLineA,
	"etc/exports.d/":                  "",
}

const mountinfoText = `23 28 0:21 / /sys rw,nosuid shared:7 - sysfs sysfs rw
40 23 0:35 / /sys/kernel/config rw,nosuid shared:12 - configfs configfs rw
60 28 0:50 / /tank/csi rw shared:30 - zfs tank/csi rw,xattr
61 60 0:51 / /tank/csi/a rw shared:31 - zfs tank/csi/a rw,xattr
`

func TestNFSServer(t *testing.T) {
	judge(t, []row{
		{"runs", storageFiles, nil, OK, []string{"8 threads", "+4.2"}},
		{"no module", files{}, nil, Fail, []string{"does not run", "systemctl start nfs-server"}},
		{"no threads", storageFiles.with(files{"proc/fs/nfsd/threads": "0\n"}), nil, Fail, []string{"does not run"}},
		{"no port", storageFiles.with(files{"proc/fs/nfsd/portlist": "\n"}), nil, Fail, []string{"no port"}},
		{"no versions", storageFiles.without("proc/fs/nfsd/versions"), nil, Fail, []string{"versions"}},
	}, (*Checker).nfsServer)
}

func TestMountd(t *testing.T) {
	judge(t, []row{
		{"runs", storageFiles, nil, OK, nil},
		{"for version 4 alone", storageFiles.with(files{"proc/813/stat": stat("nfsv4.exportd", "S", "1")}), nil, OK, nil},
		{"does not run", storageFiles.without("proc/813/stat"), nil, Fail, []string{"systemctl start nfs-mountd"}},
		{"has ended", storageFiles.with(files{"proc/813/stat": stat("rpc.mountd", "Z", "1")}), nil, Fail, []string{"does not run"}},
		{"no table", storageFiles.without("var/lib/nfs/etab"), nil, Fail, []string{"exportfs -r"}},
	}, (*Checker).mountd)
}

func TestExportsDirectory(t *testing.T) {
	judge(t, []row{
		{"there", storageFiles, nil, OK, nil},
		{"not yet", files{}, nil, OK, []string{"is made"}},
		{"a file", files{"etc/exports.d": "x"}, nil, Fail, []string{"is a file"}},
	}, (*Checker).exportsDir)
}

func TestConfigfs(t *testing.T) {
	judge(t, []row{
		{"with a tree", storageFiles.with(files{"sys/kernel/config/target/iscsi/": ""}), nil, OK, []string{"with the target's tree"}},
		{"without", storageFiles, nil, OK, []string{"tarn loads"}},
		{"not mounted", storageFiles.with(files{"proc/self/mountinfo": "23 28 0:21 / /sys rw shared:7 - sysfs sysfs rw\n", "sys/kernel/config/": ""}), nil, Fail, []string{"mount -t configfs"}},
		{"elsewhere", storageFiles.with(files{"proc/self/mountinfo": "40 23 0:35 / /config rw - configfs configfs rw\n"}), nil, Fail, nil},
		{"no table", files{}, nil, Fail, []string{"mount table"}},
	}, (*Checker).configfs)
}

func TestModules(t *testing.T) {
	kernel := files{
		"proc/sys/kernel/osrelease":                  "6.1.0-40-amd64\n",
		"lib/modules/6.1.0-40-amd64/modules.dep":     "kernel/drivers/target/target_core_iblock.ko.xz: kernel/x.ko\nkernel/drivers/md/dm-multipath.ko:\n",
		"lib/modules/6.1.0-40-amd64/modules.builtin": "kernel/fs/ext4/ext4.ko\n",
		"sys/module/nfsd/":                           "",
	}
	for name, want1 := range map[string]struct {
		status Status
		words  string
	}{
		"nfsd": {OK, "nfsd loaded"}, "target_core_iblock": {OK, "can be loaded"}, "dm_multipath": {OK, "can be loaded"}, "ext4": {OK, "can be loaded"},
		"iblock": {Fail, "modprobe iblock"}, "xfs": {Fail, "neither loaded nor installed"},
	} {
		want(t, newWorld(t, kernel, nil).module("m", "nfsd", name), want1.status, want1.words)
	}
	want(t, newWorld(t, files{}, nil).module("m", "nfsd"), Fail, "nfsd")
}

func TestIscsid(t *testing.T) {
	socket := "Num       RefCount Protocol Flags    Type St Inode Path\n0000000000000000: 00000002 00000000 00010000 0001 01 12345 @ISCSIADM_ABSTRACT_NAMESPACE\n"
	judge(t, []row{
		{"runs", files{"proc/net/unix": socket, "proc/9/stat": stat("iscsid", "S", "1")}, nil, OK, []string{"runs"}},
		{"by its socket", files{"proc/net/unix": socket}, nil, OK, []string{"is started by its socket"}},
		{"deaf", files{"proc/net/unix": "Num\n", "proc/9/stat": stat("iscsid", "S", "1")}, nil, Fail, []string{"does not listen"}},
		{"no sockets at all", files{}, nil, Fail, nil},
	}, (*Checker).iscsid)
}

func TestClock(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, r := range []struct {
		state clockState
		err   error
		want  Status
	}{
		{clockState{now, true}, nil, OK},
		{clockState{now, false}, nil, Warn},
		{clockState{time.Unix(0, 0), true}, nil, Fail},
		{clockState{}, errors.New("no clock"), Fail},
	} {
		c := newWorld(t, nil, nil)
		c.clock = func() (clockState, error) { return r.state, r.err }
		want(t, c.checkClock(), r.want)
	}
	if s, err := kernelClock(); err != nil || s.now.Before(earliest) {
		t.Errorf("this kernel says %+v, %v", s, err)
	}
}

func TestTools(t *testing.T) {
	find := func(name string) func(*Checker) Finding {
		return func(c *Checker) Finding { return c.tool(context.Background(), name) }
	}
	judge(t, []row{
		{"tells its version", nil, tools{"iscsiadm": {out: "iscsiadm version 2.1.8\n"}}, OK, []string{"/usr/sbin/iscsiadm", "2.1.8"}},
		{"knows no such flag", nil, tools{"iscsiadm": {err: &run.Error{Code: 7, Stderr: "unrecognized option"}}}, OK, []string{"/usr/sbin/iscsiadm"}},
		{"missing", nil, nil, Fail, []string{"apt install open-iscsi"}},
		{"does not run", nil, tools{"iscsiadm": {err: &run.Error{Code: -1, Err: errors.New("exec format error")}}}, Fail, []string{"exec format error"}},
	}, find("iscsiadm"))
	judge(t, []row{
		{"complains with its version", nil, tools{"resize2fs": {err: &run.Error{Code: 1, Stderr: "resize2fs 1.47.0 (5-Feb-2023)\nUsage:"}}}, OK, []string{"1.47.0"}},
	}, find("resize2fs"))
	for name := range versions {
		if packages[name] == "" {
			t.Errorf("nobody knows who brings %s", name)
		}
	}
}

func TestZFSVersions(t *testing.T) {
	find := func(c *Checker) Finding {
		list := collect(t, c.zfs)
		return named(t, list, zfsLine)
	}
	both := func(module, tl string) (files, tools) {
		return files{"sys/module/zfs/version": module + "\n"}, tools{"zfs version": {out: "zfs-" + tl + "\nzfs-kmod-" + module + "\n"}}
	}
	var rows []row
	for _, r := range []struct {
		module, tools string
		want          Status
	}{
		{"2.1.11-1", "2.1.11-1", OK}, {"2.1.11-1", "2.1.11-1+deb12u1", OK}, {"2.2.0-rc1", "2.2.0-rc1", OK}, {"2.10.0", "2.10.0", OK},
		{"2.1.11-1", "2.1.9-1", Warn}, {"2.1.11-1", "2.2.2-1", Warn},
		{"0.8.6-1", "0.8.6-1", Fail}, {"2.0.3-9", "2.0.3-9", Fail}, {"2.1.11-1", "", Fail},
	} {
		f, tl := both(r.module, r.tools)
		rows = append(rows, row{r.module + " and " + r.tools, f, tl, r.want, []string{r.module}})
	}
	f, _ := both("2.1.11-1", "")
	rows = append(rows,
		row{"no module", files{}, tools{"zfs": {}}, Fail, []string{"zfs-dkms"}},
		row{"tools do not run", f, tools{"zfs": {err: &run.Error{Line: "zfs version", Code: 1, Err: errors.New("exit status 1")}}}, Fail, []string{"exit status 1"}})
	judge(t, rows, find)
}

func TestKeys(t *testing.T) {
	const key = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n"
	const master, node = "var/lib/tarn/master.key", "var/lib/tarn/node.key"
	for _, r := range []struct {
		name, mode  string
		files       files
		key, folder os.FileMode
		want        Status
		word        string
	}{
		{"controller", config.Controller, files{master: key}, 0o600, 0o700, OK, "master.key"},
		{"controller without", config.Controller, files{}, 0, 0, Fail, "tarn key --create"},
		{"a damaged key", config.Controller, files{master: "abc"}, 0o600, 0o700, Fail, "locks every node out"},
		{"open to a group", config.Controller, files{master: key}, 0o640, 0o700, Warn, "chmod 600"},
		{"in an open folder", config.Controller, files{master: key}, 0o600, 0o777, Warn, "chmod go-w"},
		{"all without", config.All, files{}, 0, 0, OK, "is made"},
		{"all", config.All, files{master: key}, 0o600, 0o755, OK, ""},
		{"node", config.Node, files{node: key}, 0o400, 0o755, OK, "node.key"},
		{"node without", config.Node, files{master: key}, 0o600, 0o755, Warn, "tarn key NODE"},
		{"node open to all", config.Node, files{node: key}, 0o644, 0o755, Warn, "chmod 600"},
	} {
		t.Run(r.name, func(t *testing.T) {
			c := newWorld(t, r.files, nil)
			c.cfg.Mode = r.mode
			for name := range r.files {
				if err := os.Chmod(c.host.path(name), r.key); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(c.host.path("var/lib/tarn"), r.folder); err != nil {
					t.Fatal(err)
				}
			}
			f := named(t, c.Keys(), keyLine)
			want(t, f, r.want, r.word)
			for _, secret := range []string{"0011", "abc"} {
				if strings.Contains(f.Found+f.Advice, secret) {
					t.Errorf("%+v shows the key", f)
				}
			}
		})
	}
	c := newWorld(t, nil, nil)
	c.cfg.Protocols = []string{"nfs"}
	if list := c.Keys(); len(list) > 0 {
		t.Errorf("NFS needs no key: %v", list)
	}
}

func TestCHAPModes(t *testing.T) {
	c := newWorld(t, files{"var/lib/tarn/chap/u.n.json": "{}"}, nil)
	c.cfg.Pools[0].CHAP = "none"
	want(t, named(t, collect(t, c.chap), "chap of pool tank"), Warn, "chap: derived")
	c.cfg.Pools[0].CHAP = "derived"
	want(t, named(t, collect(t, c.chap), "chap of pool tank"), OK, "derived")
	c.cfg.Pools[0].CHAP = "secrets"
	want(t, named(t, collect(t, c.chap), "chap pairs"), Warn, "chmod -R go=", "/var/lib/tarn/chap")
	if err := os.Chmod(c.host.path("var/lib/tarn/chap"), 0o700); err != nil {
		t.Fatal(err)
	}
	want(t, named(t, collect(t, c.chap), "chap pairs"), OK)
	if err := os.Chmod(c.host.path("var/lib/tarn/chap/u.n.json"), 0o604); err != nil {
		t.Fatal(err)
	}
	want(t, named(t, collect(t, c.chap), "chap pairs"), Warn, "u.n.json")
}
