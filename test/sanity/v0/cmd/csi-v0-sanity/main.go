// The csi-v0-sanity program judges a plugin by csi.v0, the Container Storage
// Interface in version 0.2.0. It writes one line a check and exits with 1 when
// one failed, with 2 when the suite could not be run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	sanityv0 "github.com/tarn-csi/tarn/test/sanity/v0"
)

func main() {
	// The first signal ends the run and cleans up, the second ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	unusable := func(err error) int {
		_, _ = fmt.Fprintf(stderr, "csi-v0-sanity: %v\n", err)
		return 2
	}
	fs := flag.NewFlagSet("csi-v0-sanity", flag.ContinueOnError)
	fs.SetOutput(stderr)
	var f sanityv0.Flags
	f.Register(fs)
	list := fs.Bool("list", false, "list the checks and exit")
	mustFail := fs.String("must-fail", "", "for a plugin with a deliberate fault: exit with 0 only when this `check` fails")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case fs.NArg() > 0:
		return unusable(fmt.Errorf("unknown argument %q", fs.Arg(0)))
	}
	known := sanityv0.Checks()
	if *list {
		for _, ck := range known {
			_, _ = fmt.Fprintf(stdout, "%s [%s]\n", ck.Name, ck.Section)
		}
		return 0
	}
	if *mustFail != "" && !slices.ContainsFunc(known, func(ck sanityv0.Check) bool { return ck.Name == *mustFail }) {
		return unusable(fmt.Errorf("there is no check %q", *mustFail))
	}
	o, err := f.Options(stderr)
	if err != nil {
		return unusable(err)
	}
	report, err := sanityv0.Execute(ctx, o, func(r sanityv0.Result) { _, _ = fmt.Fprint(stdout, r) })
	if err != nil {
		return unusable(err)
	}
	_, _ = fmt.Fprint(stdout, report.Summary())
	switch {
	case *mustFail != "" && !slices.Contains(report.Names(sanityv0.Failed), *mustFail):
		_, _ = fmt.Fprintf(stdout, "%s did not fail\n", *mustFail)
		return 1
	case *mustFail == "" && !report.OK():
		return 1
	}
	return 0
}
