package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tarn-csi/tarn/test/docs/markdown"
)

// Every command line of Tarn's in the documentation has a subcommand, flags and
// values that Tarn takes, and as many arguments as it wants.
func TestDocumentedCommandLinesAreTaken(t *testing.T) {
	docs, err := markdown.Read("../..")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, d := range docs {
		for _, b := range d.Blocks {
			if !slices.Contains([]string{"console", "sh", "indented"}, b.Language) {
				continue
			}
			commands, err := b.Commands()
			if err != nil {
				t.Errorf("%s: %v", d.Path, err)
			}
			for _, c := range commands {
				args, ours := tarnArgs(c.Argv)
				if !ours {
					continue
				}
				lines++
				if err := taken(args, true); err != nil {
					t.Errorf("%s:%d: tarn %q: %v", d.Path, c.Line, args, err)
				}
			}
		}
		for _, s := range d.Spans {
			if !strings.HasPrefix(s, "tarn ") {
				continue
			}
			list, err := markdown.Split(s)
			if err != nil {
				t.Errorf("%s: %v", d.Path, err)
				continue
			}
			// In a sentence a command may stand for itself, without its arguments.
			if err := taken(list[0][1:], false); err != nil {
				t.Errorf("%s: `%s`: %v", d.Path, s, err)
			}
		}
	}
	if lines < 5 {
		t.Errorf("only %d lines were found", lines)
	}
}

// tarnArgs are the arguments of a command that runs Tarn, here, on another host or
// in a container.
func tarnArgs(argv []string) ([]string, bool) {
	at := 0
	switch argv[0] {
	case "sudo":
		at = 1
	case "ssh":
		at = 2
	case "kubectl":
		if at = slices.Index(argv, "--") + 1; at == 0 {
			return nil, false
		}
	}
	if at >= len(argv) || !slices.Contains([]string{"tarn", "bin/tarn", "/tarn"}, argv[at]) {
		return nil, false
	}
	return argv[at+1:], true
}

// taken says why Tarn would refuse arguments, without doing anything; whole ones
// must have what the command needs.
func taken(args []string, whole bool) error {
	root := rootCommand()
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if c == root {
		return errors.New("there is no subcommand")
	}
	if err := c.ParseFlags(rest); err != nil && !errors.Is(err, pflag.ErrHelp) {
		return err
	}
	if !whole {
		return nil
	}
	if asked := c.Flags().Lookup("help"); asked != nil && asked.Changed {
		return nil
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	return errors.Join(c.ValidateRequiredFlags(), c.ValidateFlagGroups())
}

func TestWrongCommandLinesAreRefused(t *testing.T) {
	for line, right := range map[string]bool{
		"tarn volumes --pv-yaml --storage-class nfs=a":      true,
		"sudo tarn orphans --remove":                        true,
		"bin/tarn serve --help":                             true,
		"ssh host tarn check":                               true,
		"kubectl -n tarn exec a -c b -- /tarn key worker-1": true,
		"tarn volumes --pv-yaml --json":                     false,
		"tarn volume":                                       false,
		"tarn":                                              false,
		"tarn check --verbose":                              false,
		"tarn unpublish tank/a":                             false,
		"sudo tarn volumes tank/a":                          false,
		"tarn serve --operation-timeout=soon":               false,
		"kubectl -n tarn exec a -- tarn nothing":            false,
		"ssh host tarn adopt":                               false,
	} {
		args, ours := tarnArgs(strings.Fields(line))
		if !ours {
			t.Errorf("%q is not seen", line)
			continue
		}
		if err := taken(args, true); (err == nil) != right {
			t.Errorf("%q: %v", line, err)
		}
	}
	for _, line := range []string{"install bin/tarn a", "kubectl get tarn", "systemctl restart tarn"} {
		if args, ours := tarnArgs(strings.Fields(line)); ours {
			t.Errorf("%q is taken for tarn %q", line, args)
		}
	}
}
