package check

import (
	"context"
	"errors"
	"io/fs"
	"regexp"
	"strings"

	"github.com/tarn-csi/tarn/pkg/config"
)

const (
	lvmFilter = `add global_filter = [ "r|^/dev/zd|", "r|^/dev/zvol/|" ] to the section devices of /etc/lvm/lvm.conf`
	lvmHow    = "the volume groups that a node makes in its volume become this host's"
)

// lvm looks whether this host's LVM scans zvols: it would hold open what it
// finds in a node's volume.
func (c *Checker) lvm(ctx context.Context, add func(...Finding)) {
	if held := c.lvmHolds(); len(held) > 0 {
		add(warn("lvm", "vgchange --activate n the volume group, and "+lvmFilter, "has mapped what nodes wrote: %s", some(held)))
		return
	}
	if _, err := c.lookPath("lvm"); err != nil {
		add(ok("lvm", "is not installed"))
		return
	}
	conf := lvmConfig{}
	for _, file := range []string{"etc/lvm/lvm.conf", "etc/lvm/lvmlocal.conf"} { // the second one wins
		text, err := c.host.read(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			add(fail("lvm", "see /"+file, "%v", err))
			return
		}
		conf.parse(text)
	}
	used, err := c.devicesFile(ctx, conf)
	if err != nil {
		add(fail("lvm", "see `lvmconfig --typeconfig full`", "does not tell whether it uses a devices file: %v", err))
		return
	}
	add(judgeLVM(conf, used, c.zvolNames()))
}

// judgeLVM decides by the devices file, if it is used, else by the filters.
// devices is the file's text.
func judgeLVM(conf lvmConfig, devices *string, zvols []string) Finding {
	if devices != nil {
		if strings.Contains(*devices, "/dev/zd") || strings.Contains(*devices, "/dev/zvol") {
			return warn("lvm", "take it out with lvmdevices --deldev", "a zvol is in its devices file, so %s", lvmHow)
		}
		return ok("lvm", "uses a devices file, which has no zvol")
	}
	for _, key := range []string{"devices/global_filter", "devices/filter"} {
		patterns, set := conf[key]
		if set && !passes(patterns, zvols) {
			return ok("lvm", "%s leaves zvols alone", key)
		}
	}
	return warn("lvm", lvmFilter, "scans zvols, so %s", lvmHow)
}

// devicesFile returns the text of the devices file, or nil when LVM does not go
// by one (lvmdevices(8)).
func (c *Checker) devicesFile(ctx context.Context, conf lvmConfig) (*string, error) {
	name := "system.devices"
	if v := conf["devices/devicesfile"]; len(v) > 0 && v[0] != "" {
		name = v[0]
	}
	text, err := c.host.read("etc/lvm/devices/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	use := conf["devices/use_devicesfile"]
	if len(use) == 0 {
		// The default is the packager's choice.
		out, err := c.ask(ctx, "lvmconfig", "--type", "default", "devices/use_devicesfile")
		if err != nil {
			return nil, err
		}
		_, value, _ := strings.Cut(strings.TrimSpace(out), "=")
		use = []string{value}
	}
	if use[0] != "1" {
		return nil, nil
	}
	return &text, nil
}

// zvolNames are names that a zvol of ours could have in /dev.
func (c *Checker) zvolNames() []string {
	list := []string{"/dev/zd16"}
	for _, p := range c.cfg.Pools {
		list = append(list, zvolName(p))
	}
	return list
}

func zvolName(p config.Pool) string { return "/dev/zvol/" + p.Parent + "/pvc-1" }

// passes reports whether LVM's filter lets a device with these names through. Of
// each name the first pattern that matches counts; one accepted name lets the
// device pass, and so does no match at all (lvm.conf(5)).
func passes(patterns, names []string) bool {
	rejected := false
	for _, name := range names {
		for _, p := range patterns {
			if len(p) < 3 {
				continue
			}
			last := strings.LastIndex(p, closing(p[1:2]))
			if last < 2 {
				continue
			}
			re, err := regexp.Compile(p[2:last])
			if err != nil || !re.MatchString(name) {
				continue
			}
			if p[0] == 'a' {
				return true
			}
			rejected = true
			break
		}
	}
	return !rejected
}

// closing is the delimiter that ends what another one began.
func closing(open string) string {
	if i := strings.Index("([{", open); i >= 0 {
		return ")]}"[i : i+1]
	}
	return open
}

// lvmHolds names the mappings of LVM above zvols.
func (c *Checker) lvmHolds() []string {
	var list []string
	for _, holder := range c.host.glob("sys/block/zd*/holders/*") {
		if uuid, err := c.host.read(holder + "/dm/uuid"); err != nil || !strings.HasPrefix(uuid, "LVM-") {
			continue
		}
		name, err := c.host.read(holder + "/dm/name")
		if err != nil {
			name = holder
		}
		list = append(list, strings.Split(holder, "/")[2]+" as "+name)
	}
	return list
}
