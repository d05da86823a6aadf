package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tarn-csi/tarn/test/docs/markdown"
)

// pages are all pages that a person reads to run Tarn.
func pages(t *testing.T) []markdown.Doc {
	t.Helper()
	list, err := markdown.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// reader judges the commands of one page.
type reader struct {
	makefile string
	// written are the files that earlier commands of the page made.
	written map[string]bool
}

// tools are the commands that the documentation uses; a rule may be nil where
// there is nothing to be wrong. `tarn` itself is judged by cmd/tarn's tests, with
// its real flags.
func tools() map[string]func(*reader, []string) error {
	return map[string]func(*reader, []string) error{
		"tarn":        nil,
		"make":        (*reader).make,
		"kubectl":     (*reader).kubectl,
		"helm":        verbs("install", "upgrade", "uninstall", "template", "lint"),
		"zfs":         verbs("create", "get", "set", "inherit", "list", "rename", "snapshot", "destroy", "send", "receive", "load-key", "mount", "unmount", "holds", "release"),
		"zpool":       verbs("create", "import", "export", "status", "clear", "list", "scrub", "online", "replace", "events"),
		"systemctl":   verbs("start", "stop", "restart", "enable", "disable", "status", "daemon-reload", "edit", "cat", "is-active"),
		"apt":         verbs("install", "update"),
		"apt-get":     verbs("install", "update"),
		"exportfs":    flags("-v", "-ra", "-r"),
		"iscsiadm":    flags("-m", "-P"),
		"journalctl":  flags("-u", "-f", "-n", "-b", "--since", "-k"),
		"modprobe":    nil,
		"ssh":         (*reader).ssh,
		"scp":         nil,
		"install":     nil,
		"cat":         nil,
		"chmod":       nil,
		"cp":          nil,
		"dmesg":       nil,
		"findmnt":     nil,
		"fuser":       nil,
		"grep":        nil,
		"hack/vm/run": nil, "hack/vm/shell": nil,
		"ls":         nil,
		"mount":      nil,
		"umount":     nil,
		"multipath":  nil,
		"ps":         nil,
		"rm":         nil,
		"ss":         nil,
		"stat":       nil,
		"targetcli":  nil,
		"xfs_repair": nil,
		"e2fsck":     nil,
	}
}

// verbs is the rule of tools whose first word is a verb.
func verbs(known ...string) func(*reader, []string) error {
	return func(_ *reader, args []string) error {
		if len(args) == 0 || !slices.Contains(known, args[0]) {
			return fmt.Errorf("the verb of %q is none of %v", args, known)
		}
		return nil
	}
}

// flags is the rule of tools that are used with these flags.
func flags(known ...string) func(*reader, []string) error {
	return func(_ *reader, args []string) error {
		for _, a := range args {
			if strings.HasPrefix(a, "-") && !slices.Contains(known, a) {
				return fmt.Errorf("the flag %s is none of %v", a, known)
			}
		}
		return nil
	}
}

func (r *reader) make(args []string) error {
	for _, target := range args {
		if !strings.Contains(target, "=") && !strings.Contains(r.makefile, "\n"+target+":") {
			return fmt.Errorf("the Makefile has no target %s", target)
		}
	}
	return nil
}

// kubectl checks the verb, and that what is applied exists; what is run in a
// container is a command again.
func (r *reader) kubectl(args []string) error {
	// A namespace may stand in front of the verb.
	for len(args) > 1 && (args[0] == "-n" || args[0] == "--namespace") {
		args = args[2:]
	}
	if err := verbs("apply", "create", "delete", "get", "describe", "logs", "exec", "patch", "annotate", "label", "rollout",
		"scale", "taint", "cordon", "uncordon", "drain", "wait", "kustomize", "diff", "version", "run")(r, args); err != nil {
		return err
	}
	for i, a := range args {
		switch {
		case a == "--" && args[0] == "exec":
			return r.check(args[i+1:])
		case a == "-k" || a == "-f" && args[0] != "logs":
			if i+1 == len(args) {
				return fmt.Errorf("nothing follows %s", a)
			}
			if err := r.exists(args[i+1]); err != nil {
				return err
			}
		case strings.HasPrefix(a, "--from-file="):
			if err := r.exists(strings.TrimPrefix(a, "--from-file=")); err != nil {
				return err
			}
		case args[0] == "kustomize" && i == 1:
			if err := r.exists(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// ssh runs a command on another host.
func (r *reader) ssh(args []string) error {
	if len(args) < 2 {
		return nil
	}
	return r.check(args[1:])
}

// exists checks a file of the project, or one that an earlier command wrote.
func (r *reader) exists(path string) error {
	if path == "-" || r.written[path] {
		return nil
	}
	if _, err := os.Stat(filepath.Join(root, path)); err != nil {
		return fmt.Errorf("%s is neither in the project nor made by an earlier command", path)
	}
	return nil
}

// ours are paths of the project, whatever the command is.
var ours = regexp.MustCompile(`^(deploy|docs|hack|test)/`)

// program is where Tarn's own binary is after a build, and in its image.
var program = regexp.MustCompile(`^(bin)?/`)

func (r *reader) check(argv []string) error {
	if len(argv) > 1 && argv[0] == "sudo" {
		argv = argv[1:]
	}
	rule, known := tools()[program.ReplaceAllString(argv[0], "")]
	if !known {
		return fmt.Errorf("the tool %q is unknown to this test", argv[0])
	}
	for _, a := range argv {
		if ours.MatchString(a) {
			if err := r.exists(a); err != nil {
				return err
			}
		}
	}
	if rule == nil {
		return nil
	}
	return rule(r, argv[1:])
}

func newReader(t *testing.T) *reader {
	return &reader{makefile: read(t, "Makefile"), written: map[string]bool{}}
}

// Every line of every block of commands is one that this test knows, with what
// it names in its place.
func TestEveryCommandIsKnown(t *testing.T) {
	for _, d := range pages(t) {
		r := newReader(t)
		for _, b := range d.Blocks {
			switch b.Language {
			case "", "text", "yaml": // what a command prints, pictures; see TestEveryYAMLBlockIsValid
				continue
			case "console", "sh", "indented":
			default:
				t.Errorf("%s:%d: a block of %q is not tested", d.Path, b.Line, b.Language)
				continue
			}
			commands, err := b.Commands()
			if err != nil {
				t.Errorf("%s: %v", d.Path, err)
			}
			for _, c := range commands {
				if err := r.check(c.Argv); err != nil {
					t.Errorf("%s:%d: %v", d.Path, c.Line, err)
				}
				r.written[c.Writes] = true
				if at := slices.Index(c.Argv, "--master-key-file"); at > 0 && slices.Contains(c.Argv, "--create") {
					r.written[c.Argv[at+1]] = true
				}
			}
		}
		for _, s := range d.Spans {
			if target, ok := strings.CutPrefix(s, "make "); ok {
				if err := r.make(strings.Fields(target)); err != nil {
					t.Errorf("%s: `%s`: %v", d.Path, s, err)
				}
			}
		}
	}
}

// The README's console blocks are run on a host without a cluster, by test/e2e:
// what needs one stands in blocks of sh.
func TestTheReadmesConsoleNeedsNoCluster(t *testing.T) {
	for _, b := range markdown.Parse(read(t, "README.md")).Blocks {
		if b.Language != "console" {
			continue
		}
		commands, err := b.Commands()
		if err != nil {
			t.Error(err)
		}
		for _, c := range commands {
			if !slices.Contains([]string{"make", "zfs", "bin/tarn"}, c.Argv[0]) {
				t.Errorf("README.md:%d: %s is not on the host where the block is run", c.Line, c.Argv[0])
			}
		}
	}
}

// The rules refuse what they are there for.
func TestUnknownCommandsAreRefused(t *testing.T) {
	for _, line := range []string{
		"frobnicate", "zfs remove tank/a", "zpool", "make everything", "kubectl aply -k deploy", "kubectl apply -k deploy/nowhere",
		"kubectl apply -f nowhere.yaml", "kubectl -n tarn exec a -- frobnicate", "kubectl exec a -- zfs nothing", "cat deploy/nothing.yaml",
		"exportfs -o x", "kubectl create secret generic a --from-file=nowhere.key", "kubectl frob", "helm frob", "systemctl frob tarn", "ssh host zfs nothing", "sudo frobnicate", "ls | frobnicate",
	} {
		list, err := markdown.Split(line)
		if err != nil {
			t.Fatal(err)
		}
		refused := false
		for _, argv := range list {
			refused = refused || newReader(t).check(argv) != nil
		}
		if !refused {
			t.Errorf("%q passes", line)
		}
	}
}
