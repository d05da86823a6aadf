package check

import (
	"strings"
)

// module reports whether all of the modules are loaded, built in, or there to be
// loaded, which Tarn and the tools do when they are needed.
func (c *Checker) module(what string, names ...string) Finding {
	var found []string
	for _, name := range names {
		switch {
		case c.host.exists("sys/module/" + name):
			found = append(found, name+" loaded")
		case c.available(name):
			found = append(found, name+" can be loaded")
		default:
			return fail(what, "install the kernel's full module package, and try `modprobe "+name+"`",
				"%s is neither loaded nor installed for this kernel", name)
		}
	}
	return ok(what, "%s", strings.Join(found, ", "))
}

// available looks for a module in the running kernel's lists (modprobe(8)). File
// names may have dashes where modules have underscores.
func (c *Checker) available(name string) bool {
	release, err := c.host.read("proc/sys/kernel/osrelease")
	if err != nil {
		return false
	}
	for _, list := range []string{"modules.dep", "modules.builtin"} {
		text, err := c.host.read("lib/modules/" + release + "/" + list)
		if err == nil && strings.Contains(strings.ReplaceAll(text, "-", "_"), "/"+name+".ko") {
			return true
		}
	}
	return false
}
