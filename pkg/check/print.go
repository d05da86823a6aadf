package check

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// Print writes the table: a line a finding, with what to do after what is.
func Print(w io.Writer, list []Finding) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range list {
		text := f.Found
		if f.Advice != "" {
			text += ": " + f.Advice
		}
		if _, err := fmt.Fprintf(t, "%s\t%s\t%s\n", f.Status, f.Name, text); err != nil {
			return err
		}
	}
	return t.Flush()
}

// PrintJSON writes the findings as one JSON list.
func PrintJSON(w io.Writer, list []Finding) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(append([]Finding{}, list...))
}
