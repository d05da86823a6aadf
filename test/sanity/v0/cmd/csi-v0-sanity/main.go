// The csi-v0-sanity program judges a plugin by csi.v0, the Container Storage
// Interface in version 0.2.0. It writes one line a check and exits with 1 when
// one failed, with 2 when the suite could not be run.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	sanityv0 "github.com/tarn-csi/tarn/test/sanity/v0"
)

func main() {
	os.Exit(run())
}

func run() int {
	var f sanityv0.Flags
	f.Register(flag.CommandLine)
	list := flag.Bool("list", false, "list the checks and exit")
	mustFail := flag.String("must-fail", "", "for a plugin with a deliberate fault: exit with 0 only when this `check` fails")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "csi-v0-sanity: unknown argument %q\n", flag.Arg(0))
		return 2
	}
	known := sanityv0.Checks()
	if *list {
		for _, ck := range known {
			fmt.Printf("%s [%s]\n", ck.Name, ck.Section)
		}
		return 0
	}
	if *mustFail != "" && !slices.ContainsFunc(known, func(ck sanityv0.Check) bool { return ck.Name == *mustFail }) {
		fmt.Fprintf(os.Stderr, "csi-v0-sanity: there is no check %q\n", *mustFail)
		return 2
	}
	o, err := f.Options(os.Stderr)
	if err != nil {
		fmt.Fprintf(os.Stderr, "csi-v0-sanity: %v\n", err)
		return 2
	}

	// The first signal ends the run and cleans up, the second ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	report, err := sanityv0.Execute(ctx, o, func(r sanityv0.Result) { fmt.Print(r) })
	if err != nil {
		fmt.Fprintf(os.Stderr, "csi-v0-sanity: %v\n", err)
		return 2
	}
	fmt.Print(report.Summary())
	if *mustFail != "" {
		if slices.Contains(report.Names(sanityv0.Failed), *mustFail) {
			return 0
		}
		fmt.Printf("%s did not fail\n", *mustFail)
		return 1
	}
	if !report.OK() {
		return 1
	}
	return 0
}
