package tree

import (
	"flag"
	"strconv"
	"testing"
)

// Checks is how often rapid is to try, with little spent on a shorter way to a
// failure, unless the command line says otherwise.
func Checks(t *testing.T, times int) {
	t.Helper()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if testing.Short() {
		times *= 5 // of which rapid leaves a fifth
	}
	for name, value := range map[string]string{"rapid.checks": strconv.Itoa(times), "rapid.shrinktime": "1m"} {
		if given[name] {
			continue
		}
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
}
