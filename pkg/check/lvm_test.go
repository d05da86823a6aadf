package check

import (
	"errors"
	"reflect"
	"testing"

	"github.com/tarn-csi/tarn/pkg/run"
)

func TestLVM(t *testing.T) {
	lvm := tools{"lvm": {}, "lvmconfig": {out: "use_devicesfile=0\n"}}
	modern := tools{"lvm": {}, "lvmconfig": {out: "use_devicesfile=1\n"}}
	conf := func(text string) files { return files{"etc/lvm/lvm.conf": text} }
	devices := files{"etc/lvm/devices/system.devices": "VERSION=1.1.1\nIDTYPE=devname IDNAME=/dev/sda2 DEVNAME=/dev/sda2 PVID=x\n"}
	judge(t, []row{
		{"not installed", files{}, tools{}, OK, []string{"is not installed"}},
		{"as installed", conf("config {\n\tchecks = 1\n}\ndevices {\n\t# filter = [ \"r|/dev/zd|\" ]\n\tdir = \"/dev\"\n}\n"), lvm, Warn, []string{"global_filter = ["}},
		{"no configuration", files{}, lvm, Warn, []string{"scans zvols"}},
		{"global filter", conf("devices {\n\tglobal_filter = [ \"r|^/dev/zd|\", \"r|^/dev/zvol/|\" ]\n}\n"), lvm, OK, []string{"global_filter"}},
		{"global filter of one name", conf("devices { global_filter = \"r|/dev/zd.*|\" }"), lvm, OK, nil},
		{"filter", conf("devices {\n filter = [\"a|^/dev/sda|\",\n \"r|.*|\"] }"), lvm, OK, []string{"devices/filter"}},
		{"a path at top level", conf("devices/filter = [ \"r/zd/\" ]"), lvm, OK, nil},
		{"everything first", conf("devices { global_filter = [ \"a|.*|\", \"r|/dev/zd|\" ] }"), lvm, Warn, nil},
		{"accepted by another name", conf("devices { filter = [ \"r|^/dev/zd|\", \"a|^/dev/zvol/|\" ] }"), lvm, Warn, nil},
		{"another disk", conf("devices { filter = [ \"r|/dev/sd|\" ] }"), lvm, Warn, nil},
		{"in another section", conf("backup { filter = [ \"r|.*|\" ] }"), lvm, Warn, nil},
		{"in a comment", conf("devices { # filter = [ \"r|.*|\" ]\n}"), lvm, Warn, nil},
		{"the local file wins", conf("devices { filter = [ \"a|.*|\" ] }").with(files{"etc/lvm/lvmlocal.conf": "devices { filter = [ \"r|.*|\" ] }"}), lvm, OK, nil},
		{"brackets around", conf("devices { filter = [ \"r{/dev/zd}\" ] }"), lvm, OK, nil},
		{"broken patterns", conf("devices { filter = [ \"r\", \"r|(|\", \"x\" ] }"), lvm, Warn, nil},
		{"devices file by default", devices, modern, OK, []string{"devices file"}},
		{"devices file that is not used", devices, lvm, Warn, []string{"scans zvols"}},
		{"devices file switched on", devices.with(conf("devices { use_devicesfile = 1 }")), lvm, OK, []string{"devices file"}},
		{"devices file switched off", devices.with(conf("devices { use_devicesfile=0 }")), modern, Warn, nil},
		{"devices file, and none there", conf("devices { use_devicesfile = 1 }"), modern, Warn, nil},
		{"devices file of another name", files{"etc/lvm/devices/mine": ""}.with(conf("devices { use_devicesfile = 1 devicesfile = \"mine\" }")), lvm, OK, nil},
		{"devices file with a zvol", files{"etc/lvm/devices/system.devices": "IDTYPE=devname IDNAME=/dev/zd16 DEVNAME=/dev/zd16"}, modern, Warn, []string{"lvmdevices --deldev"}},
		{"does not tell", devices, tools{"lvm": {}, "lvmconfig": {err: &run.Error{Code: 5, Err: errors.New("exit status 5")}}}, Fail, []string{"exit status 5"}},
		{"has mapped a zvol", conf("devices { filter = [ \"r|.*|\" ] }").with(files{
			"sys/block/zd16/holders/dm-3/dm/uuid": "LVM-abc\n", "sys/block/zd16/holders/dm-3/dm/name": "vg-lv\n",
		}), lvm, Warn, []string{"zd16 as vg-lv", "vgchange"}},
	}, func(c *Checker) Finding { return named(t, collect(t, c.lvm), "lvm") })
}

func TestLVMConfiguration(t *testing.T) {
	l := lvmConfig{}
	l.parse("# { \ndevices { a = [ \"}\", \"#\\\"x\", ] b=1 # = 2\n sub { c = word } d = [] }\ne=\"\"\n}\nf = 3 g")
	want := lvmConfig{"devices/a": {"}", `#"x`}, "devices/b": {"1"}, "devices/sub/c": {"word"}, "devices/d": nil, "e": {""}, "f": {"3"}}
	if !reflect.DeepEqual(l, want) {
		t.Errorf("got %q", l)
	}
	for _, text := range []string{"", "devices {", "a =", "a = [", "a = [ \"x", "} } }", "{ = }", "\"", "a = ["} {
		lvmConfig{}.parse(text) // ends
	}
}
