package sanityv0

import (
	"flag"
	"os"
	"testing"
)

var (
	flags Flags
	// wholeSuite runs all checks on each mutant, and not only those of the topic
	// that must see it: what else sees it is then in the log.
	wholeSuite = flag.Bool("mutants-in-full", false, "run the whole suite on each mutant")
)

// TestMain adds the suite's options to the flags of the test binary. With an
// endpoint only TestEndpoint has work to do: the others are about the suite.
func TestMain(m *testing.M) {
	flags.Register(flag.CommandLine)
	flag.Parse()
	os.Exit(m.Run())
}

// TestEndpoint judges the plugin that the command line names.
func TestEndpoint(t *testing.T) {
	if !flags.Given() {
		t.Skip("no --endpoint is given")
	}
	o, err := flags.Options(os.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	Run(t, o)
}
