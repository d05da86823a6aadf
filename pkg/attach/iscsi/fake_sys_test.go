package iscsi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tarn-csi/tarn/pkg/mount"
)

// open makes what the kernel makes of a login, with its links: a session of a
// host, and its disk unless the target shows none.
func (w world) open(iqn, initiator string, s server) {
	n := 1
	for ; w.get(fmt.Sprintf("sys/class/iscsi_session/session%d/targetname", n)) != ""; n++ {
	}
	session := fmt.Sprintf("session%d", n)
	base := fmt.Sprintf("sys/devices/platform/host%d/%s", n, session)
	w.set(base+"/iscsi_session/"+session+"/targetname", iqn+"\n")
	w.set(base+"/iscsi_session/"+session+"/state", loggedIn+"\n")
	w.set(base+"/iscsi_session/"+session+"/initiatorname", initiator+"\n")
	w.link("../../../"+session, base+"/iscsi_session/"+session+"/device")
	w.link("../../devices/platform/"+fmt.Sprintf("host%d/%s/iscsi_session/%s", n, session, session), "sys/class/iscsi_session/"+session)
	w.set(fmt.Sprintf("sys/class/scsi_host/host%d/scan", n), "")
	if !s.NoDisk {
		w.disk(n, 1, s.Serial)
	}
}

// disk makes the disk of a session at a LUN and returns its name.
func (w world) disk(n, lun int, serial string) string {
	minor := 16 * (10*n + lun)
	name := fmt.Sprintf("sd%c%c", 'a'+n, 'a'+lun)
	scsi := fmt.Sprintf("devices/platform/host%d/session%d/target%d:0:0/%d:0:0:%d", n, n, n, n, lun)
	w.set("sys/"+scsi+"/vpd_pg80", "\x00\x80\x00\x20"+serial)
	w.set("sys/"+scsi+"/rescan", "")
	w.set("sys/"+scsi+"/state", "running\n")
	w.block(scsi+"/block/"+name, name, 8, minor)
	w.link("../..", "sys/"+scsi+"/block/"+name+"/device")
	return name
}

// block makes a block device at a place below sys.
func (w world) block(place, name string, major, minor int) {
	number := fmt.Sprintf("%d:%d", major, minor)
	w.set("sys/"+place+"/dev", number+"\n")
	w.mkdir("sys/" + place + "/holders")
	w.mkdir("sys/" + place + "/slaves")
	for _, class := range []string{"block", "class/block"} {
		w.link(w.path("sys/"+place), "sys/"+class+"/"+name)
	}
	w.link(w.path("sys/"+place), "sys/dev/block/"+number)
	w.set("dev/"+name, number)
}

// dm makes a device-mapper device over others.
func (w world) dm(minor int, name, uuid string, slaves ...string) string {
	dm := fmt.Sprintf("dm-%d", minor)
	w.block("devices/virtual/block/"+dm, dm, 253, minor)
	w.set("sys/block/"+dm+"/dm/name", name+"\n")
	w.set("sys/block/"+dm+"/dm/uuid", uuid+"\n")
	for _, s := range slaves {
		w.link(w.path("sys/block/"+s), "sys/block/"+dm+"/slaves/"+s)
		w.link(w.path("sys/block/"+dm), "sys/block/"+s+"/holders/"+dm)
	}
	return dm
}

func (w world) undm(dm string) {
	slaves, err := os.ReadDir(w.path("sys/block/" + dm + "/slaves"))
	must(err)
	for _, s := range slaves {
		w.remove("sys/block/" + s.Name() + "/holders/" + dm)
	}
	w.unblock(dm)
}

// unblock removes a block device and the links to it.
func (w world) unblock(name string) {
	number := strings.TrimSpace(w.get("sys/block/" + name + "/dev"))
	real, err := filepath.EvalSymlinks(w.path("sys/block/" + name))
	must(err)
	for _, link := range []string{"sys/block/" + name, "sys/class/block/" + name, "sys/dev/block/" + number, "dev/" + name} {
		w.remove(link)
	}
	must(os.RemoveAll(real))
}

// close ends a session. Like the kernel it asks nobody who uses the disk.
func (w world) close(session string) {
	disks, err := filepath.Glob(w.path("sys/class/iscsi_session/" + session + "/device/target*/*/block/*"))
	must(err)
	for _, d := range disks {
		w.unblock(filepath.Base(d))
	}
	host := strings.TrimPrefix(session, "session")
	w.remove("sys/class/iscsi_session/" + session)
	w.remove("sys/devices/platform/host" + host)
}

// fakeTee is the kernel behind the sysfs files that Attacher writes.
func fakeTee(w world, args []string) int {
	if len(args) != 1 {
		return complain(1, "tee: one file")
	}
	if _, err := os.Stat(args[0]); err != nil {
		return complain(1, "tee: %v", err)
	}
	text := make([]byte, 64)
	n, _ := os.Stdin.Read(text)
	dir := filepath.Dir(args[0])
	switch filepath.Base(args[0]) {
	case "rescan":
		if fresh, err := os.ReadFile(w.path("fresh vpd")); err == nil {
			must(os.WriteFile(dir+"/vpd_pg80", fresh, 0o600))
		}
	case "scan":
		if string(text[:n]) != "- - 1" {
			return complain(1, "tee: Invalid argument")
		}
		var host int
		fmt.Sscanf(filepath.Base(dir), "host%d", &host)
		w.disk(host, 1, testSerial)
	default:
		return complain(1, "tee: Permission denied")
	}
	return 0
}

func fakeBlockdev(w world, args []string) int {
	if len(args) != 2 || args[0] != "--flushbufs" {
		return complain(1, "blockdev: bad usage")
	}
	if _, err := os.Stat(args[1]); err != nil || w.mode("blockdev") != "" {
		return complain(1, "blockdev: cannot open %s: %s", args[1], w.mode("blockdev"))
	}
	return 0
}

func fakeMultipath(w world, args []string) int {
	if len(args) != 2 || args[0] != "-f" {
		return complain(1, "multipath: bad usage")
	}
	names, err := filepath.Glob(w.path("sys/block/dm-*/dm/name"))
	must(err)
	for _, path := range names {
		if b, _ := os.ReadFile(path); strings.TrimSpace(string(b)) != args[1] {
			continue
		}
		switch w.mode("multipath") {
		case "":
		case "busy": // it was opened after multipath had looked
			return complain(1, "device-mapper: remove ioctl on %s  failed: Device or resource busy", args[1])
		default:
			return complain(1, "%s: map in use", args[1])
		}
		w.undm(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return 0
	}
	return complain(1, "multipath: %s is not a multipath device", args[1])
}

func fakeMultipathd(w world, args []string) int {
	if strings.Join(args, " ") == "show paths raw format %d %m" {
		fmt.Print(w.get("paths"))
		return 0
	}
	if len(args) != 3 || args[0] != "resize" || args[1] != "map" {
		return complain(1, "multipathd: bad usage")
	}
	if w.mode("multipathd") != "" {
		fmt.Println("fail")
		return 0
	}
	fmt.Println("ok")
	return 0
}

func fakeModprobe(w world, args []string) int {
	if strings.Join(args, " ") != "--dry-run --quiet iscsi_tcp" || w.mode("modprobe") != "" {
		return 1
	}
	return 0
}

func fixedMounts(infos []mount.Info) func(context.Context) ([]mount.Info, error) {
	return func(context.Context) ([]mount.Info, error) { return infos, nil }
}
