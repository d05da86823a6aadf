package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// options is what `run` was asked for.
type options struct {
	name     string
	daemon   bool
	shares   []string
	disks    []disk
	env      []string
	timeout  time.Duration
	memory   int
	cpus     int
	net      string
	services string
	tty      bool
	cached   bool
	command  []string
}

// disk is a file for a guest's disk; one without a path is made for this guest and goes with it.
type disk struct {
	path string
	size string
}

var (
	sizePattern = regexp.MustCompile(`^[0-9]+[KMGT]?$`)
	namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,30}$`)
	netPattern  = regexp.MustCompile(`^(.+):([12])$`)
)

// netHost is the network of the guest and this machine, without any right on it.
const netHost = "host"

const defaultTimeout = 1800 * time.Second

// flags walks over "--name value" and "--switch" up to "--" or the first other word.
func flags(args []string, switches map[string]func(), values map[string]func(string) error) (rest []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		if arg == "--" {
			return args[1:], nil
		}
		if !strings.HasPrefix(arg, "-") {
			return args, nil
		}
		args = args[1:]
		if f, ok := switches[arg]; ok {
			f()
			continue
		}
		arg, value, inline := strings.Cut(arg, "=")
		f, ok := values[arg]
		if !ok {
			return nil, usage("unknown option %s", arg)
		}
		if !inline {
			if len(args) == 0 {
				return nil, usage("%s needs a value", arg)
			}
			value, args = args[0], args[1:]
		}
		if err := f(value); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func parseRun(args []string) (*options, error) {
	o := &options{timeout: defaultTimeout, memory: 2048, cpus: 2, services: "zfs nfs iscsi lio"}
	switches := map[string]func(){
		"--daemon":      func() { o.daemon = true },
		"--no-services": func() { o.services = "" },
		"--tty":         func() { o.tty = true },
		"--cached":      func() { o.cached = true },
	}
	values := map[string]func(string) error{
		"--share":   o.addShare,
		"--disk":    o.addDisk,
		"--env":     addEnv(&o.env),
		"--timeout": seconds(&o.timeout),
		"--memory":  number("--memory", &o.memory),
		"--cpus":    number("--cpus", &o.cpus),
		"--name": func(v string) error {
			if !namePattern.MatchString(v) {
				return usage("--name %s: use a-z, 0-9 and -, 31 at most", v)
			}
			o.name = v
			return nil
		},
		"--net": func(v string) error {
			if v != netHost && !netPattern.MatchString(v) {
				return usage("--net %s: SOCKDIR:ID, with ID 1 or 2, or host", v)
			}
			o.net = v
			return nil
		},
	}
	var err error
	o.command, err = flags(args, switches, values)
	switch {
	case err != nil:
		return nil, err
	case o.daemon && o.name == "":
		return nil, usage("--daemon needs --name")
	case o.daemon && len(o.command) > 0:
		return nil, usage("--daemon takes no command: use hack/vm/exec")
	case !o.daemon && len(o.command) == 0:
		return nil, usage("no command: run [OPTION]... -- COMMAND [ARG]...")
	}
	return o, nil
}

func (o *options) addShare(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return usage("--share %s: no such folder", dir)
	}
	if strings.ContainsAny(dir, " \t\n:") {
		return usage("--share %s: a blank or colon in the name", dir)
	}
	for _, other := range o.shares {
		if filepath.Base(other) == filepath.Base(dir) {
			return usage("--share: two folders named %s", filepath.Base(dir))
		}
	}
	o.shares = append(o.shares, dir)
	return nil
}

func (o *options) addDisk(v string) error {
	if sizePattern.MatchString(v) {
		o.disks = append(o.disks, disk{size: v})
		return nil
	}
	if _, err := os.Stat(v); err == nil {
		o.disks = append(o.disks, disk{path: v})
		return nil
	}
	path, size, found := strings.Cut(v, ":")
	if !found || !sizePattern.MatchString(size) {
		return usage("--disk %s: no such file; SIZE, FILE or FILE:SIZE (made when missing)", v)
	}
	o.disks = append(o.disks, disk{path: path, size: size})
	return nil
}

func addEnv(env *[]string) func(string) error {
	return func(v string) error {
		if !strings.Contains(v, "=") {
			return usage("--env %s: KEY=VALUE", v)
		}
		*env = append(*env, v)
		return nil
	}
}

func seconds(d *time.Duration) func(string) error {
	return func(v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n <= 0 {
			return usage("--timeout %s: a number of seconds", v)
		}
		*d = time.Duration(n) * time.Second
		return nil
	}
}

func number(flag string, n *int) func(string) error {
	return func(v string) error {
		var err error
		if *n, err = strconv.Atoi(v); err != nil || *n <= 0 {
			return usage("%s %s: a number", flag, v)
		}
		return nil
	}
}

// bytes is a size like 512M in bytes.
func bytes(size string) (int64, error) {
	unit := int64(1)
	if i := strings.Index("KMGT", size[len(size)-1:]); i >= 0 {
		unit = 1 << (10 * (i + 1))
		size = size[:len(size)-1]
	}
	n, err := strconv.ParseInt(size, 10, 64)
	return n * unit, err
}
