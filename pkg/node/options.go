package node

import (
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
)

// notOptions change what mount(8) does instead of how a filesystem is mounted.
var notOptions = map[string]bool{"bind": true, "rbind": true, "move": true, "remount": true, "loop": true}

// parseOptions takes lists of mount options apart and returns the options
// without ro and rw, and whether the last of those two was ro: what decides
// about writing is not only these options. Texts of errors hold no value.
func parseOptions(lists []string) (options []string, readOnly bool, err error) {
	for _, list := range lists {
		for _, o := range splitOptions(list) {
			name, _, _ := strings.Cut(o, "=")
			switch {
			case strings.ContainsFunc(o, func(r rune) bool { return r < ' ' || r == 0x7f }):
				return nil, false, fault.New(fault.Invalid, "a mount option holds a control character")
			case notOptions[name]:
				return nil, false, fault.New(fault.Invalid, "%q cannot be given as a mount option", ident.Printable(name))
			case o == "ro":
				readOnly = true
			case o == "rw":
				readOnly = false
			case o != "":
				options = append(options, o)
			}
		}
	}
	return options, readOnly, nil
}

// splitOptions splits at commas outside double quotes, as mount(8) does: an
// SELinux context holds commas.
func splitOptions(list string) []string {
	quoted := false
	return strings.FieldsFunc(list, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ',' && !quoted
	})
}
