package check

import (
	"regexp"
	"slices"
	"strings"
)

// lioVendor and lioProduct are what a disk of ours says it is (INQUIRY of the
// kernel's iblock backstore); lioWWID is how the id of each of them begins
// (spc_parse_naa_6h_vendor_specific in drivers/target/target_core_spc.c).
const (
	lioVendor  = "LIO-ORG"
	lioProduct = "IBLOCK"
	lioWWID    = "36001405aaaaaaaaaaaaaaaaaaaaaaaaa"
)

const oneRule = "set find_multipaths strict in the section defaults of /etc/multipath.conf, then multipathd reconfigure"

// multipath looks whether multipathd takes disks that have one path. Tarn uses
// its map then, which works, and costs a layer.
func (c *Checker) multipath() Finding {
	maps := c.multipathMaps()
	if !c.host.listens("/multipathd") {
		if len(maps) > 0 {
			return warn("multipath", "systemctl start multipathd", "multipathd does not run, and its maps are in use: %s", some(maps))
		}
		return ok("multipath", "multipathd does not run, and is not needed")
	}
	var conf section
	for _, file := range append([]string{"etc/multipath.conf"}, c.host.glob("etc/multipath/conf.d/*.conf")...) {
		if text, err := c.host.read(file); err == nil {
			conf.children = append(conf.children, parseMultipath(text).children...)
		}
	}
	return judgeMultipath(conf, len(maps))
}

// judgeMultipath decides by the configuration of a multipathd that runs.
func judgeMultipath(conf section, maps int) Finding {
	if conf.blacklisted("blacklist") && !conf.blacklisted("blacklist_exceptions") {
		return ok("multipath", "multipathd runs, and leaves Tarn's disks alone by its blacklist")
	}
	find := "strict" // the default since 0.8
	for _, d := range conf.children {
		if d.name == "defaults" {
			for _, k := range d.children {
				if k.name == "find_multipaths" {
					find = k.value
				}
			}
		}
	}
	switch find {
	case "strict":
		return ok("multipath", "multipathd runs with find_multipaths %s, and takes no disk with one path; %d maps of Tarn's disks", find, maps)
	case "yes", "on":
		return ok("multipath", "multipathd runs with find_multipaths %s, and takes disks with two paths; %d maps of Tarn's disks", find, maps)
	}
	return warn("multipath", oneRule, "multipathd runs with find_multipaths %s, and takes every disk; %d maps of Tarn's disks", find, maps)
}

// multipathMaps names the maps above disks of an iSCSI target like ours.
func (c *Checker) multipathMaps() []string {
	var list []string
	for _, holder := range c.host.glob("sys/block/sd*/holders/*") {
		disk := strings.Split(holder, "/")[2]
		vendor, err := c.host.read("sys/block/" + disk + "/device/vendor")
		uuid, errUUID := c.host.read(holder + "/dm/uuid")
		if err != nil || errUUID != nil || vendor != lioVendor || !strings.HasPrefix(uuid, "mpath-") {
			continue
		}
		if name, err := c.host.read(holder + "/dm/name"); err == nil && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// blacklisted reports whether a section of multipath.conf names our disks
// (multipath.conf(5)).
func (s section) blacklisted(name string) bool {
	for _, list := range s.children {
		if list.name != name {
			continue
		}
		for _, k := range list.children {
			switch k.name {
			case "devnode":
				if matches(k.value, "sda") && matches(k.value, "sdzz") {
					return true
				}
			case "wwid":
				if k.value == "*" || matches(k.value, lioWWID) {
					return true
				}
			case "device":
				vendor, product := "", ""
				for _, d := range k.children {
					switch d.name {
					case "vendor":
						vendor = d.value
					case "product":
						product = d.value
					}
				}
				if vendor != "" && matches(vendor, lioVendor) && (product == "" || matches(product, lioProduct)) {
					return true
				}
			}
		}
	}
	return false
}

// matches reports whether an expression of multipath.conf matches; a leading "!"
// turns it round.
func matches(expression, text string) bool {
	pattern, not := strings.CutPrefix(expression, "!")
	re, err := regexp.Compile(pattern)
	return err == nil && re.MatchString(text) != not
}
