package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"
)

const root = "../../"

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(root + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// families are all metrics of the driver's own.
func families(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	all, err := full(t).Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "tarn_") })
}

func TestEverySourceHasASample(t *testing.T) {
	names := regexp.MustCompile(`fqName: "([^"]+)"`)
	have := families(t)
	for _, d := range descs() {
		name := names.FindStringSubmatch(d.String())[1]
		if !slices.ContainsFunc(have, func(f *dto.MetricFamily) bool { return f.GetName() == name }) {
			t.Errorf("the tests have no sample of %s", name)
		}
	}
}

// The table of docs/metrics.md is what the registry has.
func TestTheTableIsComplete(t *testing.T) {
	var want, listed []string
	for _, f := range families(t) {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		want = append(want, "| `"+f.GetName()+"` | "+strings.ToLower(f.GetType().String())+" | "+strings.Join(labels, ", ")+" | "+f.GetHelp()+" |")
	}
	for line := range strings.Lines(read(t, "docs/metrics.md")) {
		if strings.HasPrefix(line, "| `tarn_") {
			listed = append(listed, strings.TrimSuffix(line, "\n"))
		}
	}
	slices.Sort(want)
	slices.Sort(listed)
	for _, line := range want {
		if !slices.Contains(listed, line) {
			t.Errorf("docs/metrics.md has no\n%s", line)
		}
	}
	for _, line := range listed {
		if !slices.Contains(want, line) {
			t.Errorf("the driver has no\n%s", line)
		}
	}
}

// series are the names that a query may ask for.
func series(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, f := range families(t) {
		known[f.GetName()] = true
		if f.GetType() == dto.MetricType_HISTOGRAM {
			for _, end := range []string{"_bucket", "_sum", "_count"} {
				known[f.GetName()+end] = true
			}
		}
	}
	return known
}

// unknown lists the metrics and labels of a query that do not exist.
func unknown(t *testing.T, query string) []string {
	t.Helper()
	var bad []string
	known := series(t)
	names := regexp.MustCompile(`\btarn_\w+`).FindAllString(query, -1)
	if len(names) == 0 {
		return []string{"no metric at all"}
	}
	for _, name := range names {
		if !known[name] {
			bad = append(bad, name)
		}
	}
	labels := map[string]bool{"le": true, "instance": true, "job": true}
	for _, f := range families(t) {
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels[l.GetName()] = true
		}
	}
	for _, m := range regexp.MustCompile(`(?:\b(?:by|on|ignoring|without)\s*\(([^)]*)\)|\{([^}]*)\})`).FindAllStringSubmatch(query, -1) {
		for part := range strings.SplitSeq(m[1]+m[2], ",") {
			name := regexp.MustCompile(`^\s*(\w*)`).FindStringSubmatch(part)[1]
			if name != "" && !labels[name] {
				bad = append(bad, "label "+name)
			}
		}
	}
	if strings.Count(query, "(") != strings.Count(query, ")") || strings.Count(query, "{") != strings.Count(query, "}") {
		bad = append(bad, "brackets that do not close")
	}
	return bad
}

func TestUnknownMetricsAreFound(t *testing.T) {
	for query, want := range map[string]string{
		`sum by (pool) (tarn_volumes{protocol="nfs"})`:           "",
		`rate(tarn_rpc_duration_seconds_bucket{le="1"}[5m])`:     "",
		`tarn_volume_count > 0`:                                  "tarn_volume_count",
		`tarn_volumes_bucket`:                                    "tarn_volumes_bucket",
		`sum by (volume) (tarn_volumes{pool="a", claim=~"b.*"})`: "label volume label claim",
		`sum(tarn_volumes`:                                       "brackets that do not close",
		`up == 0`:                                                "no metric at all",
	} {
		if got := strings.Join(unknown(t, query), " "); got != want {
			t.Errorf("%s: %q", query, got)
		}
	}
}

func TestAlertsAskForWhatThereIs(t *testing.T) {
	decoder := yaml.NewDecoder(strings.NewReader(read(t, "deploy/monitoring/alerts.yaml")))
	decoder.KnownFields(true)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if seen[r.Alert] || r.Alert == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" || !slices.Contains([]string{"critical", "warning"}, r.Labels["severity"]) {
				t.Errorf("%s is not whole, or is there twice: %+v", r.Alert, r)
			}
			seen[r.Alert] = true
			for _, bad := range unknown(t, r.Expr) {
				t.Errorf("%s asks for %s", r.Alert, bad)
			}
			for _, text := range r.Annotations {
				for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
					for _, bad := range unknown(t, `tarn_ready{`+m[1]+`=""}`) {
						t.Errorf("%s tells %s", r.Alert, bad)
					}
				}
			}
		}
	}
	if len(seen) < 8 {
		t.Errorf("there are %d alerts only", len(seen))
	}
}

func TestTheDashboardAsksForWhatThereIs(t *testing.T) {
	type target struct{ Expr, LegendFormat string }
	type panel struct {
		ID          int
		Title, Type string
		GridPos     struct{ X, Y, W, H int }
		Targets     []target
		Datasource  struct{ UID string }
	}
	var board struct {
		Title, UID    string
		SchemaVersion int
		Panels        []panel
		Templating    struct {
			List []struct{ Name, Type, Query string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "deploy/monitoring/dashboard.json")), &board); err != nil {
		t.Fatal(err)
	}
	if board.Title == "" || board.UID == "" || board.SchemaVersion == 0 || len(board.Panels) < 8 {
		t.Errorf("the dashboard is not whole: %s, %d panels", board.Title, len(board.Panels))
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d (%s) is there twice, or has no title", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if x > 23 || taken[[2]int{x, y}] != "" {
					t.Fatalf("panel %s lies on %s, or beyond the edge", p.Title, taken[[2]int{x, y}])
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %s asks nothing, or somebody else", p.Title)
		}
		for _, q := range p.Targets {
			for _, bad := range unknown(t, q.Expr) {
				t.Errorf("panel %s asks for %s", p.Title, bad)
			}
			for _, m := range regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`).FindAllStringSubmatch(q.LegendFormat, -1) {
				for _, bad := range unknown(t, `tarn_ready{`+m[1]+`=""}`) {
					t.Errorf("panel %s is told by %s", p.Title, bad)
				}
			}
		}
	}
}
