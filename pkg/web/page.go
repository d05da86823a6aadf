package web

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/tarn-csi/tarn/pkg/node"
	"github.com/tarn-csi/tarn/pkg/op"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/pkg/volume"
)

const (
	// pageSize is how many volumes one page has.
	pageSize = 100
	// maxTroubles is how many volumes with conditions stand in front.
	maxTroubles = 50
	// maxRunning is how many operations and children are listed.
	maxRunning = 100
	// maxNodes is how many nodes of one volume are named.
	maxNodes = 6
	// maxText is how many bytes of a command or of an error are shown.
	maxText = 600
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"bytes": printBytes, "ago": ago, "age": age, "text": text, "css": func() template.CSS { return template.CSS(pageCSS) },
}).Parse(pageHTML))

// policy lets the page have its one style sheet, and nothing else: no script, no
// image, nothing from elsewhere, and no frame around it.
var policy = func() string {
	sum := sha256.Sum256([]byte(pageCSS))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}()

// view is what the page shows.
type view struct {
	Driver, Version, Mode, Node string
	Now                         time.Time
	NotReady, Stuck             error

	Storage *storage
	Sweeps  *node.Tally
	// Operations and Children run now; More are those beyond the limits.
	Operations                   []operation
	Children                     []run.Child
	MoreOperations, MoreChildren int
}

// storage is the storage host's part.
type storage struct {
	volume.Round
	Pools    []pool
	Exports  []exports
	Repaired uint64
	// Troubles are the volumes with which something is wrong, the worst first.
	Troubles     []volume.Seen
	MoreTroubles int
	// Volumes is one page of those that match Query.
	Volumes            []row
	Query              string
	All, Matching      int
	From, To           int
	Previous, Next     string
	PageNumber, Number int
}

type pool struct {
	volume.PoolRound
	TotalBytes, ProvisionedBytes int64
	// Percent is how full it is.
	Percent float64
	Level   string
}

// exports compares, for one protocol, what must be exported with what is.
type exports struct {
	Protocol                        string
	Volumes, Wanted, Seen, LoggedIn int
	Unwanted                        int
}

type row struct {
	volume.Seen
	Nodes     []string
	MoreNodes int
	Severity  string
}

type operation struct {
	op.Running
	Service string
}

func (s Sources) page(w http.ResponseWriter, r *http.Request) {
	var out bytes.Buffer
	if err := page.Execute(&out, s.view(r.URL.Query())); err != nil {
		s.Log.WithError(err).Error("the status page cannot be made")
		http.Error(w, "the page cannot be made: see the log", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(out.Bytes()) // who asked has gone
}

func (s Sources) view(query url.Values) view {
	v := view{Driver: s.Driver, Version: s.Version, Mode: s.Mode, Node: s.Node, Now: time.Now(), NotReady: s.Ready(), Stuck: s.Stuck()}
	if s.Round != nil {
		v.Storage = newStorage(s.Round(), query)
	}
	if s.Tally != nil {
		tally := s.Tally()
		v.Sweeps = &tally
	}
	for _, service := range slices.Sorted(maps.Keys(s.Operations)) {
		for _, running := range s.Operations[service]() {
			v.Operations = append(v.Operations, operation{running, service})
		}
	}
	slices.SortStableFunc(v.Operations, func(a, b operation) int { return a.Since.Compare(b.Since) })
	v.Operations, v.MoreOperations = atMost(v.Operations, maxRunning)
	v.Children, v.MoreChildren = atMost(s.Children(), maxRunning)
	return v
}

func newStorage(r volume.Round, query url.Values) *storage {
	s := &storage{Round: r, Query: strings.TrimSpace(query.Get("q"))}
	for _, n := range r.Repairs {
		s.Repaired += n
	}
	byProtocol := map[string]*exports{volume.NFS: {Protocol: volume.NFS}, volume.ISCSI: {Protocol: volume.ISCSI}}
	for protocol, n := range r.Unwanted {
		byProtocol[protocol] = &exports{Protocol: protocol, Unwanted: n}
	}
	var matching []volume.Seen
	for _, p := range r.Pools {
		s.Pools = append(s.Pools, newPool(p))
		for _, v := range p.Volumes {
			s.All++
			if e := byProtocol[v.Protocol]; e != nil {
				e.count(v)
			}
			if len(v.Conditions) > 0 || v.Trouble != "" {
				s.Troubles = append(s.Troubles, v)
			}
			if matches(v, s.Query) {
				matching = append(matching, v)
			}
		}
	}
	for _, protocol := range slices.Sorted(maps.Keys(byProtocol)) {
		s.Exports = append(s.Exports, *byProtocol[protocol])
	}
	slices.SortStableFunc(s.Troubles, func(a, b volume.Seen) int { return cmp.Compare(worst(b), worst(a)) })
	s.Troubles, s.MoreTroubles = atMost(s.Troubles, maxTroubles)
	s.turnTo(matching, query.Get("page"))
	return s
}

// turnTo shows one page of the volumes; a page that is not there is the nearest.
func (s *storage) turnTo(matching []volume.Seen, number string) {
	s.Matching = len(matching)
	s.Number = max(1, (len(matching)+pageSize-1)/pageSize)
	n, err := strconv.Atoi(number)
	if err != nil {
		n = 1
	}
	s.PageNumber = min(max(n, 1), s.Number)
	from := (s.PageNumber - 1) * pageSize
	to := min(from+pageSize, len(matching))
	s.From, s.To = from+1, to
	for _, v := range matching[from:to] {
		s.Volumes = append(s.Volumes, newRow(v))
	}
	if s.PageNumber > 1 {
		s.Previous = s.address(s.PageNumber - 1)
	}
	if s.PageNumber < s.Number {
		s.Next = s.address(s.PageNumber + 1)
	}
}

func (s *storage) address(number int) string {
	v := url.Values{"page": {strconv.Itoa(number)}}
	if s.Query != "" {
		v.Set("q", s.Query)
	}
	return "?" + v.Encode() + "#volumes"
}

func (e *exports) count(v volume.Seen) {
	e.Volumes++
	if v.Published() {
		e.Wanted++
	}
	if v.Exported() {
		e.Seen++
	}
	e.LoggedIn += v.Sessions
}

func newPool(p volume.PoolRound) pool {
	v := pool{PoolRound: p, TotalBytes: p.UsedBytes + p.AvailableBytes, Level: "low"}
	for _, s := range p.Volumes {
		v.ProvisionedBytes += s.SizeBytes
	}
	if v.TotalBytes > 0 {
		v.Percent = 100 * float64(p.UsedBytes) / float64(v.TotalBytes)
	}
	switch {
	case v.Percent >= 90:
		v.Level = "full"
	case v.Percent >= 75:
		v.Level = "high"
	}
	return v
}

func newRow(v volume.Seen) row {
	r := row{Seen: v}
	r.Nodes, r.MoreNodes = atMost(v.PublishedTo, maxNodes)
	if w := worst(v); w > 0 {
		r.Severity = w.String()
	}
	return r
}

// worst is the worst that is wrong with a volume.
func worst(v volume.Seen) volume.Severity {
	var w volume.Severity
	if v.Trouble != "" {
		w = volume.Degraded
	}
	for _, c := range v.Conditions {
		w = max(w, c.Severity)
	}
	return w
}

// matches reports whether a word stands in what a person knows of a volume.
func matches(v volume.Seen, word string) bool {
	if word == "" {
		return true
	}
	word = strings.ToLower(word)
	for _, s := range append([]string{v.ID, v.Dataset, v.UUID, v.Owner.String(), v.Owner.Volume, v.Protocol, v.Export}, v.PublishedTo...) {
		if strings.Contains(strings.ToLower(s), word) {
			return true
		}
	}
	return false
}

// atMost cuts a list, and says how many are left out.
func atMost[T any](list []T, most int) ([]T, int) {
	if len(list) <= most {
		return list, 0
	}
	return list[:most], len(list) - most
}

// text is what somebody else wrote, in one piece and without what a terminal or
// a reader would take for something else.
func text(s any) string {
	t := fmt.Sprint(s)
	if len(t) > maxText {
		t = strings.ToValidUTF8(t[:maxText], "") + " …"
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, t)
}

// ago is when something was; "never" for no time.
func ago(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return age(now, t) + " ago"
}

// age is a time's distance from now.
func age(now, t time.Time) string {
	d := max(now.Sub(t), 0)
	if d < time.Minute {
		return d.Truncate(time.Second).String()
	}
	return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
}

// printBytes writes a number of bytes with a binary unit.
func printBytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	if unit == 0 || value >= 100 {
		return fmt.Sprintf("%.0f %s", value, units[unit])
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}
