package volume

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/tarn-csi/tarn/pkg/ident"
)

// PrintOrphans writes the table for people.
func PrintOrphans(w io.Writer, list []Orphan) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if _, err := fmt.Fprintln(t, "KIND\tNAME\tBYTES\tREMOVABLE\tWHY"); err != nil {
		return err
	}
	for _, o := range list {
		bytes := "-"
		if o.Bytes > 0 {
			bytes = printBytes(o.Bytes)
		}
		if _, err := fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", o.Kind, ident.Printable(o.Name), bytes, o.Removal, strings.ReplaceAll(o.Why, "\n", " ")); err != nil {
			return err
		}
	}
	return t.Flush()
}
