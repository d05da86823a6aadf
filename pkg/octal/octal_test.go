package octal

import "testing"

func TestUnescape(t *testing.T) {
	for written, want := range map[string]string{
		"": "", "/plain": "/plain", `/a\040b`: "/a b", `\011\012`: "\t\n", `/end\040`: "/end ", `\134040`: `\040`, `\303\244`: "ä",
		`\04`: `\04`, `\999`: `\999`, `\777`: `\777`, `\`: `\`,
	} {
		if got := Unescape(written); got != want {
			t.Errorf("%q: got %q, want %q", written, got, want)
		}
	}
}
