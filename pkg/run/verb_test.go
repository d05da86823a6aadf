package run

import (
	"strings"
	"testing"
)

func TestVerbIsTheFirstWordThatIsNoOptionAndNoPath(t *testing.T) {
	for args, want := range map[string]string{
		"":                                    "",
		"create -u -o tarn:name=a tank/csi/a": "create",
		"-m node -T iqn.2026-01.a --login":    "node",
		"/dev/sda":                            "",
		"--flushbufs /dev/sda":                "",
	} {
		if got := verb(strings.Fields(args)); got != want {
			t.Errorf("verb of %q is %q, want %q", args, got, want)
		}
	}
}
