package volume

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/tarn-csi/tarn/pkg/ident"
)

// PrintInventory writes the table for people.
func PrintInventory(w io.Writer, list []Entry) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if _, err := fmt.Fprintln(t, "VOLUME\tOWNER\tPROTOCOL\tSIZE\tUSED\tSNAPSHOTS\tPUBLISHED TO\tEXPORT\tCONDITION"); err != nil {
		return err
	}
	for _, e := range list {
		_, err := fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.ID, e.printOwner(), orDash(e.Protocol),
			printBytes(e.SizeBytes), printBytes(e.UsedBytes), e.printSnapshots(), orDash(strings.Join(e.nodes(), ",")), e.Export, e.printConditions())
		if err != nil {
			return err
		}
	}
	return t.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return ident.Printable(s)
}

func (e Entry) printOwner() string {
	if e.Ephemeral {
		return strings.TrimSpace(ident.Printable(e.Owner.String()) + " (ephemeral)")
	}
	return orDash(e.Owner.String())
}

// nodes are the names of the nodes.
func (e Entry) nodes() []string {
	var names []string
	for _, id := range e.PublishedTo {
		name, _, _ := strings.Cut(id, "@")
		names = append(names, name)
	}
	return names
}

func (e Entry) printSnapshots() string {
	if e.ForeignSnapshots == 0 {
		return fmt.Sprint(e.Snapshots)
	}
	return fmt.Sprintf("%d, %d foreign", e.Snapshots, e.ForeignSnapshots)
}

func (e Entry) printConditions() string {
	if len(e.Conditions) == 0 {
		return "OK"
	}
	var list []string
	for _, c := range e.Conditions {
		list = append(list, fmt.Sprintf("%s %s: %s", c.Severity, c.Reason, c.Message))
	}
	return strings.ReplaceAll(strings.Join(list, "; "), "\n", " ")
}

// printBytes writes a number of bytes with three digits and a binary unit, as
// zfs(8) does.
func printBytes(n int64) string {
	const units = "BKMGTPE"
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	text := fmt.Sprintf("%.3g", value)
	if value >= 999.5 { // %g would write an exponent
		text = fmt.Sprintf("%.0f", value)
	}
	return text + units[unit:unit+1]
}
