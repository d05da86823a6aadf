package check

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/run"
)

const (
	uuidA = "0123456789abcdef0123456789abcdef"
	uuidB = "fedcba9876543210fedcba9876543210"
	// As nfs-utils writes it.
	etabLineA = "/tank/csi/a\t192.0.2.21(rw,sync,wdelay,hide,nocrossmnt,secure,no_root_squash,no_all_squash,no_subtree_check,secure_locks,acl,no_pnfs,mountpoint,anonuid=65534,anongid=65534,sec=sys,rw,secure,no_root_squash,no_all_squash)\n"
	exportA   = "# volume tank/a, kept by tarn: changes made here are lost\n/tank/csi/a 192.0.2.21(rw,sync,no_subtree_check,mountpoint,sec=sys,no_root_squash,no_all_squash,anonuid=65534,anongid=65534)\n"
)

// get prints a property as zfs get -Hp does.
func get(dataset, property, value, source string) string {
	return strings.Join([]string{dataset, property, value, source}, "\t") + "\n"
}

// volumeText are the properties of a volume that is published to worker-1, or of
// one that is not.
func volumeText(name, uuid, protocol string, published bool) string {
	d := "tank/csi/" + name
	text := get(d, "tarn:name", `"`+name+`"`, "local") + get(d, "tarn:uuid", uuid, "local") + get(d, "tarn:protocol", protocol, "local") +
		get(d, "tarn:request", `{"parameters":{"protocol":"`+protocol+`"},"capabilities":[]}`, "local") + get(d, "tarn:size", "1048576", "local")
	if published {
		text += get(d, "tarn:node.worker-1", fmt.Sprintf(`{"node":"worker-1@192.0.2.21","mode":%d,"type":%d,"readonly":false}`, access.SingleNodeWriter, access.Mount), "local")
	}
	return text
}

// parentText are the parent's properties; others win.
func parentText(others ...string) string {
	text := ""
	for _, p := range [][3]string{
		{"type", "filesystem", "-"}, {"creation", "1700000000", "-"}, {"mountpoint", "/tank/csi", "default"},
		{"tarn:driver", "io.github.tarn-csi", "local"}, {"keystatus", "-", "-"},
	} {
		if !strings.Contains(strings.Join(others, ""), "\t"+p[0]+"\t") {
			text += get("tank/csi", p[0], p[1], p[2])
		}
	}
	return text + strings.Join(others, "")
}

// zfsTools answers for zfs.
func zfsTools(parent, volumes, keys said) tools {
	return tools{
		"zfs get -Hp -o name,property,value,source all tank/csi": parent,
		"zfs get -Hp -o name,property,value,source -d 1":         volumes,
		"zfs get -H -d 1 -t filesystem,volume -o name,value":     keys,
	}
}

func healthy(volumes string) tools {
	return zfsTools(said{out: parentText()}, said{out: volumes}, said{out: "tank/csi\t-\ntank/csi/a\t-\n"})
}

// mine is the name of a volume's export file.
func mine(t *testing.T, uuid string) string {
	c := newWorld(t, nil, nil)
	naming, err := c.cfg.Naming()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(naming.Instance()))
	return "etc/exports.d/tarn-" + hex.EncodeToString(sum[:4]) + "-" + uuid + ".exports"
}

func look1(c *Checker) []Finding {
	var list []Finding
	c.pool(context.Background(), c.cfg.Pools[0], func(f ...Finding) { list = append(list, f...) })
	return list
}

func TestPoolState(t *testing.T) {
	state := func(s string) files { return storageFiles.with(files{"proc/spl/kstat/zfs/tank/state": s + "\n"}) }
	rows := []row{
		{"online", state("ONLINE"), nil, OK, nil},
		{"degraded", state("DEGRADED"), nil, Warn, []string{"zpool status tank"}},
		{"suspended", state("SUSPENDED"), nil, Fail, []string{"zpool clear tank"}},
		{"faulted", state("FAULTED"), nil, Fail, []string{"FAULTED"}},
		{"not imported", storageFiles.without("proc/spl/kstat/zfs/tank/state", "proc/spl/kstat/zfs/tank/iostats"), nil, Fail, []string{"zpool import tank"}},
		{"no ZFS", files{}, nil, Fail, []string{"without ZFS"}},
	}
	judge(t, rows, func(c *Checker) Finding { return c.poolState("tank") })
	// Below a pool that does not answer nothing is asked: a child would hang.
	for _, r := range rows[2:] {
		if list := look1(newWorld(t, r.files, nil)); len(list) != 1 {
			t.Errorf("%s: %+v", r.name, list)
		}
	}
}

func TestParent(t *testing.T) {
	withParent := func(p said) tools { return zfsTools(p, said{}, said{}) }
	missing := said{err: &run.Error{Code: 1, Stderr: "cannot open 'tank/csi': dataset does not exist", Err: errors.New("exit status 1")}}
	noParent := withParent(missing)
	noParent["zfs list -H -o name tank"] = said{out: "tank\n"}
	judge(t, []row{
		{"of this driver", storageFiles, withParent(said{out: parentText()}), OK, []string{"io.github.tarn-csi"}},
		{"of nobody yet", storageFiles, withParent(said{out: parentText(get("tank/csi", "tarn:driver", "-", "-"))}), OK, []string{"first start"}},
		{"of another driver", storageFiles, withParent(said{out: parentText(get("tank/csi", "tarn:driver", "org.other", "local"))}), Fail, []string{"org.other"}},
		{"with an inherited mark", storageFiles, withParent(said{out: parentText(get("tank/csi", "tarn:driver", "org.other", "inherited from tank"))}), OK, []string{"first start"}},
		{"a zvol", storageFiles, withParent(said{out: parentText(get("tank/csi", "volsize", "1048576", "local"))}), Fail, []string{"zvol"}},
		{"nowhere to mount", storageFiles, withParent(said{out: parentText(get("tank/csi", "mountpoint", "none", "local"))}), Fail, []string{"zfs set mountpoint="}},
		{"missing", storageFiles, noParent, Fail, []string{"zfs create tank/csi"}},
		{"unreadable", storageFiles, withParent(said{err: &run.Error{Code: 1, Stderr: "permission denied", Err: errors.New("exit status 1")}}), Fail, []string{"permission denied"}},
	}, func(c *Checker) Finding { return named(t, look1(c), "parent tank/csi") })
}

func TestEncryption(t *testing.T) {
	const what = "encryption of tank/csi"
	locked := get("tank/csi", "keystatus", "unavailable", "-")
	open := get("tank/csi", "keystatus", "available", "-")
	judge(t, []row{
		{"none", storageFiles, healthy(""), OK, []string{"none"}},
		{"loaded", storageFiles, zfsTools(said{out: parentText(open)}, said{}, said{out: "tank/csi\tavailable\n"}), OK, []string{"available"}},
		{"not loaded", storageFiles, zfsTools(said{out: parentText(locked)}, said{}, said{}), Fail, []string{"zfs load-key tank/csi"}},
		{"a volume's own", storageFiles, zfsTools(said{out: parentText()}, said{}, said{out: "tank/csi\t-\ntank/csi/v\tunavailable\n"}), Fail, []string{"tank/csi/v", "zfs load-key -r"}},
		{"cannot be seen", storageFiles, zfsTools(said{out: parentText()}, said{}, said{err: errors.New("broken")}), Fail, []string{"broken"}},
	}, func(c *Checker) Finding { return named(t, look1(c), what) })
}

// seen is a kernel's table of iSCSI targets.
type seen map[string]export.Status

func (s seen) Look(_ context.Context, uuid string) (export.Status, bool, error) {
	if s == nil {
		return export.Status{}, false, errors.New("configfs is not there")
	}
	st, there := s[uuid]
	return st, there, nil
}

func TestNFSExports(t *testing.T) {
	file := mine(t, uuidA)
	served := storageFiles.with(files{file: exportA})
	a := volumeText("a", uuidA, "nfs", true)
	late := files{
		"proc/spl/kstat/zfs/tank/iostats": "34 1 0x01 28 7616 32000000000 99000000000\nname type data\n",
	}
	unmounted := strings.Replace(mountinfoText, "61 60 0:51 / /tank/csi/a rw shared:31 - zfs tank/csi/a rw,xattr\n", "", 1)
	judge(t, []row{
		{"nothing is published", storageFiles, healthy(""), OK, []string{"0 published"}},
		{"served", served, healthy(a), OK, []string{"1 published"}},
		{"another is not published", served, healthy(a + volumeText("b", uuidB, "nfs", false)), OK, []string{"1 published"}},
		{"not in the table", served.with(files{"var/lib/nfs/etab": ""}), healthy(a), Fail, []string{"1 of 1", "tank/a (not open to worker-1)", "tarn serve"}},
		{"no file", storageFiles, healthy(a), Fail, []string{"tank/a (not exported)"}},
		{"for another node", served.with(files{"var/lib/nfs/etab": strings.Replace(etabLineA, ".21", ".22", 1)}), healthy(a), Fail, []string{"not open to worker-1"}},
		{"read only", served.with(files{"var/lib/nfs/etab": strings.ReplaceAll(etabLineA, "rw,", "ro,")}), healthy(a), Fail, []string{"not as it should be"}},
		{"open to one more", served.with(files{"var/lib/nfs/etab": etabLineA + strings.Replace(etabLineA, "192.0.2.21", "*", 1)}), healthy(a), Fail, []string{"not as it should be"}},
		{"not mounted", served.with(files{"proc/self/mountinfo": unmounted}), healthy(a), Fail, []string{"not mounted at /tank/csi/a"}},
		{"mounted elsewhere", served.with(files{"proc/self/mountinfo": strings.Replace(mountinfoText, "/tank/csi/a rw", "/mnt rw", 1)}), healthy(a), Fail, []string{"mounted at /mnt"}},
		{"one of two", served, healthy(a + volumeText("b", uuidB, "nfs", true)), Fail, []string{"1 of 2", "tank/b"}},
		{"the server was first", served.with(files{"proc/self/mountinfo": unmounted}).with(late), healthy(a), Fail, []string{"not mounted", "started 12 s before pool tank was imported"}},
		{"listing fails", served, zfsTools(said{out: parentText()}, said{err: errors.New("broken")}, said{}), Fail, []string{"broken"}},
	}, func(c *Checker) Finding {
		list := look1(c)
		if f := list[len(list)-1]; f.Name == "exports of tank" {
			return f
		}
		return named(t, list, "nfs exports of tank")
	})
}

func TestISCSIExports(t *testing.T) {
	a := volumeText("a", uuidA, "iscsi", true)
	const initiator = "iqn.2026-01.io.github.tarn-csi:tarn:node:worker-1"
	for _, r := range []struct {
		name  string
		table seen
		want  Status
		word  string
	}{
		{"served", seen{uuidA: {Complete: true, Clients: []string{initiator}}}, OK, "1 published"},
		{"no target", seen{}, Fail, "not exported"},
		{"no ACL", seen{uuidA: {Complete: true}}, Fail, "not open to worker-1"},
		{"half made", seen{uuidA: {Clients: []string{initiator}}}, Fail, "not as it should be"},
	} {
		t.Run(r.name, func(t *testing.T) {
			c := newWorld(t, storageFiles, healthy(a))
			c.exported = map[string]looker{"iscsi": r.table}
			want(t, named(t, look1(c), "iscsi exports of tank"), r.want, r.word)
		})
	}
	c := newWorld(t, storageFiles, healthy(a))
	c.exported = map[string]looker{"iscsi": seen(nil)}
	want(t, named(t, look1(c), "exports of tank"), Fail, "configfs is not there")
}

// What is published, or closed, while it is looked at is no fault: only what is
// missing twice is.
func TestAPublicationThatGoesOnIsNoFault(t *testing.T) {
	for name, there := range map[string]map[string][]bool{ // by volume, at the first look and at the second
		"served a moment later":  {uuidA: {false, true}, uuidB: {true, true}},
		"one after the other":    {uuidA: {false, true}, uuidB: {true, false}},
		"closed after the first": {uuidA: {true, false}, uuidB: {true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newWorld(t, storageFiles, healthy(volumeText("a", uuidA, "iscsi", true)+volumeText("b", uuidB, "iscsi", true)))
			looks := map[string]int{}
			c.exported = map[string]looker{"iscsi": lookFunc(func(uuid string) (export.Status, bool, error) {
				looks[uuid]++
				return export.Status{Complete: true, Clients: []string{"iqn.2026-01.io.github.tarn-csi:tarn:node:worker-1"}}, there[uuid][looks[uuid]-1], nil
			})}
			want(t, named(t, look1(c), "iscsi exports of tank"), OK)
		})
	}
}

type lookFunc func(uuid string) (export.Status, bool, error)

func (f lookFunc) Look(_ context.Context, uuid string) (export.Status, bool, error) { return f(uuid) }

func TestBrokenPropertiesAreNamed(t *testing.T) {
	broken := strings.Replace(volumeText("a", uuidA, "nfs", true), uuidA, "none", 1)
	want(t, named(t, look1(newWorld(t, storageFiles, healthy(broken))), "volumes of tank"), Fail, "tank/a", "tarn:uuid")
}

func TestStartOrder(t *testing.T) {
	served := storageFiles.with(files{mine(t, uuidA): exportA})
	a := volumeText("a", uuidA, "nfs", true)
	kstat := func(ns string) files {
		return served.with(files{"proc/spl/kstat/zfs/tank/iostats": "34 1 0x01 28 7616 " + ns + " 99000000000\nname type data\n"})
	}
	fresh := zfsTools(said{out: parentText(get("tank/csi", "creation", "1764000025", "-"))}, said{out: a}, said{out: ""})
	for _, r := range []struct {
		name  string
		files files
		tools tools
		warns bool
	}{
		{"pool, then server", served, healthy(a), false},
		{"server, then pool", kstat("32000000000"), healthy(a), true},
		{"within a second", kstat("20500000000"), healthy(a), false},
		{"a pool that was made later", kstat("32000000000"), fresh, false},
		{"nothing is published", kstat("32000000000"), healthy(""), false},
		{"no server", kstat("32000000000").without("proc/812/stat"), healthy(a), false},
		{"an older module", kstat("32000000000").without("proc/spl/kstat/zfs/tank/iostats").with(files{
			"proc/spl/kstat/zfs/tank/dmu_tx_assign": "451 1 0x01 32 1536 32000000000 99\nname type data\n"}), healthy(a), true},
		{"nobody knows", served.without("proc/spl/kstat/zfs/tank/iostats"), healthy(a), false},
		{"no time of boot", kstat("32000000000").without("proc/stat"), healthy(a), false},
	} {
		t.Run(r.name, func(t *testing.T) {
			list := look1(newWorld(t, r.files, r.tools))
			warned := false
			for _, f := range list {
				warned = warned || f.Name == "start order of tank"
			}
			if warned != r.warns {
				t.Errorf("got %+v", list)
			}
			if warned {
				want(t, named(t, list, "start order of tank"), Warn, "12 s before", "ESTALE")
			}
		})
	}
}

func TestForeignExports(t *testing.T) {
	served := storageFiles.with(files{mine(t, uuidA): exportA})
	var rows []row
	for line, word := range map[string]string{
		"":                                   "",
		"/home\t*(rw,crossmnt)\n":            "",
		"/tank/csi2\t*(rw)\n":                "",
		"/tank\t*(rw)\n":                     "",
		"/tank\t*(rw,crossmnt)\n":            "/tank to *",
		"/\t*(ro,crossmnt)\n":                "/ to *",
		"/tank/csi\t*(rw,mountpoint)\n":      "/tank/csi to *",
		"/tank/csi/b\\040c\t192.0.2.9(rw)\n": "/tank/csi/b c to 192.0.2.9",
	} {
		status := OK
		if word != "" {
			status = Warn
		}
		rows = append(rows, row{fmt.Sprintf("%q", line), served.with(files{"var/lib/nfs/etab": etabLineA + line}), healthy(volumeText("a", uuidA, "nfs", true)), status, []string{word}})
	}
	judge(t, rows, func(c *Checker) Finding { return named(t, look1(c), "foreign exports of tank") })
}
