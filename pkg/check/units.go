package check

import (
	"os"
	"path/filepath"
	"strings"
)

// unitDirs are where systemd looks for units, the one that wins first
// (systemd.unit(5)).
var unitDirs = []string{
	"etc/systemd/system", "run/systemd/system", "run/systemd/generator",
	"usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system",
}

// units is what the unit files say of order. Only files are read: what a manager
// adds by itself between targets and what they want is not in it.
type units struct {
	host host
	// files are the units that exist and are not masked.
	files map[string]bool
	// aliases are further names of units.
	aliases map[string]string
	// before are, by unit, those that are started earlier.
	before map[string][]string
}

func (c *Checker) readUnits() units {
	u := units{host: c.host, files: map[string]bool{}, aliases: map[string]string{}, before: map[string][]string{}}
	decided := map[string]bool{}
	for _, dir := range unitDirs {
		for _, kind := range []string{"service", "target", "mount", "socket"} {
			for _, path := range c.host.glob(dir + "/*." + kind) {
				name := filepath.Base(path)
				if decided[name] {
					continue
				}
				decided[name] = true
				u.read(path, name)
			}
		}
		// A setting of order cannot be taken back, so all drop-ins count.
		for _, path := range c.host.glob(dir + "/*.d/*.conf") {
			u.order(path, strings.TrimSuffix(filepath.Base(filepath.Dir(path)), ".d"))
		}
	}
	return u
}

func (u *units) read(path, name string) {
	if link, err := os.Readlink(u.host.path(path)); err == nil {
		switch base := filepath.Base(link); {
		case link == "/dev/null": // masked
			return
		case base != name:
			u.aliases[name] = base
			return
		}
	}
	text, err := u.host.read(path)
	if err == nil && text == "" {
		return // masked, too
	}
	u.files[name] = true
	u.order(path, name)
}

// order adds what the file of a unit, or a drop-in, says in After= and Before=.
// A link that leads out of a root other than "/" reads as nothing.
func (u *units) order(path, name string) {
	text, err := u.host.read(path)
	if err != nil {
		return
	}
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		for _, other := range strings.Fields(value) {
			switch strings.TrimSpace(key) {
			case "After":
				u.before[name] = append(u.before[name], other)
			case "Before":
				u.before[other] = append(u.before[other], name)
			}
		}
	}
}

// real is the unit behind a name.
func (u units) real(name string) string {
	for range len(u.aliases) {
		other, isAlias := u.aliases[name]
		if !isAlias {
			break
		}
		name = other
	}
	return name
}

func (u units) there(name string) bool { return u.files[u.real(name)] }

// enabled reports whether something that is started wants the unit.
func (u units) enabled(name string) bool {
	if !u.there(name) {
		return false
	}
	for _, dir := range unitDirs {
		if len(u.host.glob(dir+"/*.wants/"+name))+len(u.host.glob(dir+"/*.requires/"+name)) > 0 {
			return true
		}
	}
	return false
}

// after reports whether a unit is started after another one, by whatever is
// between them. What is between them is only an order when it is started too,
// which targets of a boot are.
func (u units) after(name, other string) bool {
	seen := map[string]bool{}
	next := []string{u.real(name)}
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		if seen[at] {
			continue
		}
		seen[at] = true
		if at == u.real(other) {
			return true
		}
		for alias, real := range u.aliases {
			if real == at {
				next = append(next, u.earlier(alias)...)
			}
		}
		next = append(next, u.earlier(at)...)
	}
	return false
}

func (u units) earlier(name string) []string {
	var list []string
	for _, other := range u.before[name] {
		list = append(list, u.real(other))
	}
	return list
}
