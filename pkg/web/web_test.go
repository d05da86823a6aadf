package web

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/net/html"

	"github.com/tarn-csi/tarn/pkg/node"
	"github.com/tarn-csi/tarn/pkg/op"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/pkg/volume"
)

const hostile = `</td><script>alert(1)</script><img src=x onerror=alert(2)>"'&` + "\x1b[31m\u202e"

// seen is a volume that is as it should be.
func seen(name string) volume.Seen {
	return volume.Seen{Entry: volume.Entry{ID: "tank/" + name, Protocol: volume.NFS, SizeBytes: 5 << 30, PublishedTo: []string{"worker-1@192.0.2.21"}, Export: volume.ExportOpen}}
}

// sources shows a host with these volumes.
func sources(list ...volume.Seen) Sources {
	log := logrus.New()
	log.SetOutput(io.Discard)
	round := volume.Round{
		Ended: time.Now().Add(-20 * time.Second), Took: 300 * time.Millisecond, Rounds: 7, Unwanted: map[string]int{volume.NFS: 0},
		Pools: []volume.PoolRound{{Name: "tank", Parent: "tank/csi", State: "ONLINE", UsedBytes: 3 << 40, AvailableBytes: 1 << 40, Volumes: list}},
	}
	return Sources{
		Driver: "io.github.tarn-csi", Version: "v1", Mode: "all", Node: "storage-1", Log: log,
		Metrics:    http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }),
		Ready:      func() error { return nil },
		Stuck:      func() error { return nil },
		Round:      func() volume.Round { return round },
		Tally:      func() node.Tally { return node.Tally{Staged: map[string]int{volume.NFS: 2}} },
		Children:   func() []run.Child { return nil },
		Operations: map[string]func() []op.Running{},
	}
}

// get asks the handler.
func get(t *testing.T, s Sources, method, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(s).ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w
}

// document is a page as a browser reads it.
type document struct{ *html.Node }

func open(t *testing.T, s Sources, target string) document {
	t.Helper()
	r := get(t, s, http.MethodGet, target)
	if r.Code != http.StatusOK || r.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("%d, %s", r.Code, r.Header().Get("Content-Type"))
	}
	n, err := html.Parse(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return document{n}
}

// all are the elements of a name below one with an id; "" is the whole page.
func (d document) all(id, name string) []*html.Node {
	var found []*html.Node
	for n := range d.Descendants() {
		if n.Type == html.ElementNode && n.Data == name && (id == "" || within(n, id)) {
			found = append(found, n)
		}
	}
	return found
}

func within(n *html.Node, id string) bool {
	for ; n != nil; n = n.Parent {
		if attribute(n, "id") == id {
			return true
		}
	}
	return false
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// words is the text of an element, with single spaces.
func words(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func (d document) text(id string) string {
	for n := range d.Descendants() {
		if n.Type == html.ElementNode && attribute(n, "id") == id {
			return words(n)
		}
	}
	return ""
}

func mustSay(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q does not say %q", text, p)
		}
	}
}

func TestThePageShowsTheHost(t *testing.T) {
	broken := seen("broken")
	broken.Export, broken.Conditions = volume.ExportMissing, []volume.Condition{{Severity: volume.Inaccessible, Reason: volume.NotExported, Message: "to node worker-1"}}
	s := sources(seen("good"), broken)
	s.Children = func() []run.Child {
		return []run.Child{{Line: "iscsiadm -v [masked]", Since: time.Now().Add(-90 * time.Second)}}
	}
	s.Operations["storage"] = func() []op.Running {
		return []op.Running{{What: "CreateVolume", Keys: []string{"tank/new"}, Since: time.Now(), Overdue: true}}
	}
	d := open(t, s, "/")
	mustSay(t, d.text("ready"), "ready")
	mustSay(t, d.text("pools"), "tank ONLINE", "tank/csi", "used 3.0 TiB 75 %", "free 1.0 TiB", "volumes 2 of 10.0 GiB")
	mustSay(t, d.text("exports"), "nfs 2 2 1 0 0", "Last round 20s ago, in 0.3 s; 7 rounds")
	mustSay(t, d.text("conditions"), "NotExported tank/broken to node worker-1")
	mustSay(t, d.text("volumes"), "tank/good", "5.0 GiB", "worker-1@192.0.2.21", "open OK", "missing INACCESSIBLE", "1 to 2 of 2")
	mustSay(t, d.text("node"), "staged, nfs 2")
	mustSay(t, d.text("running"), "CreateVolume overdue storage tank/new", "iscsiadm -v [masked] 1m")
	bars := d.all("pools", "rect")
	if len(bars) != 2 || attribute(bars[1], "width") != "75.0%" || attribute(bars[1], "class") != "fill high" {
		t.Errorf("the bar is %+v", bars)
	}
}

// What an orchestrator, a tool or a person named cannot become a part of the
// page.
func TestForeignTextIsOnlyText(t *testing.T) {
	v := seen(hostile)
	v.Owner.Claim, v.Trouble, v.Protocol, v.PublishedTo = hostile, hostile, hostile, []string{hostile}
	v.Conditions = []volume.Condition{{Severity: volume.Degraded, Reason: volume.PoolDegraded, Message: hostile}}
	s := sources(v)
	s.Driver, s.Version, s.Node = hostile, hostile, hostile
	s.Ready, s.Stuck = func() error { return errors.New(hostile) }, func() error { return errors.New(hostile) }
	s.Children = func() []run.Child { return []run.Child{{Line: hostile}} }
	s.Operations["storage"] = func() []op.Running { return []op.Running{{What: hostile, Keys: []string{hostile}}} }
	onlyText(t, open(t, s, "/"))
	d := open(t, s, "/?q=<script>alert(3)</script>\"'+onfocus=x")
	onlyText(t, d)
	mustSay(t, d.text("conditions"), `</td><script>alert(1)</script>`)
	if inputs := d.all("volumes", "input"); len(inputs) != 1 || attribute(inputs[0], "value") != `<script>alert(3)</script>"' onfocus=x` {
		t.Errorf("the query became %+v", inputs)
	}
	d = open(t, s, "/")
	if rows := d.all("volumes", "tr"); len(rows) != 2 || !strings.Contains(words(rows[1]), hostile[:len(`</td><script>`)]) {
		t.Errorf("there are %d rows", len(rows))
	}
}

// onlyText looks for what would be more than text.
func onlyText(t *testing.T, d document) {
	t.Helper()
	for n := range d.Descendants() {
		if n.Type == html.ElementNode && (n.Data == "script" || n.Data == "img") {
			t.Errorf("there is a <%s>", n.Data)
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") {
				t.Errorf("<%s> has %s", n.Data, a.Key)
			}
		}
		if n.Type == html.TextNode && strings.ContainsAny(n.Data, "\x1b\u202e") {
			t.Errorf("%q has control characters", n.Data)
		}
	}
}

func TestManyVolumesArePaged(t *testing.T) {
	var list []volume.Seen
	for i := range 250 {
		v := seen(fmt.Sprintf("v%03d", i))
		if i%2 == 0 {
			v.Conditions = []volume.Condition{{Severity: volume.Degraded, Reason: volume.PoolDegraded, Message: "it is degraded"}}
		}
		list = append(list, v)
	}
	list[7].Conditions = []volume.Condition{{Severity: volume.Inaccessible, Reason: volume.NotMounted, Message: "first of all"}}
	s := sources(list...)
	for _, c := range []struct{ query, first, last, says, links string }{
		{"", "tank/v000", "tank/v099", "1 to 100 of 250", "?page=2#volumes"},
		{"?page=2", "tank/v100", "tank/v199", "101 to 200 of 250", "?page=1#volumes ?page=3#volumes"},
		{"?page=3", "tank/v200", "tank/v249", "201 to 250 of 250", "?page=2#volumes"},
		{"?page=99", "tank/v200", "tank/v249", "page 3 of 3", "?page=2#volumes"},
		{"?page=-1", "tank/v000", "tank/v099", "page 1 of 3", "?page=2#volumes"},
		{"?page=x", "tank/v000", "tank/v099", "page 1 of 3", "?page=2#volumes"},
		{"?q=V24", "tank/v240", "tank/v249", "1 to 10 of 10 that match, of 250", ""},
		{"?q=worker-1&page=2", "tank/v100", "tank/v199", "101 to 200 of 250", "?page=1&q=worker-1#volumes ?page=3&q=worker-1#volumes"},
	} {
		d := open(t, s, "/"+c.query)
		rows := d.all("volumes", "tr")[1:]
		if !strings.HasPrefix(words(rows[0]), c.first) || !strings.HasPrefix(words(rows[len(rows)-1]), c.last) {
			t.Errorf("%s: from %s to %s", c.query, words(rows[0]), words(rows[len(rows)-1]))
		}
		mustSay(t, d.text("volumes"), c.says)
		var links []string
		for _, a := range d.all("volumes", "a") {
			links = append(links, attribute(a, "href"))
		}
		if got := strings.Join(links, " "); got != c.links {
			t.Errorf("%s: the links are %s", c.query, got)
		}
	}
	d := open(t, s, "/")
	conditions := d.all("conditions", "li")
	if len(conditions) != maxTroubles || !strings.Contains(words(conditions[0]), "first of all") {
		t.Errorf("%d conditions, the first is %s", len(conditions), words(conditions[0]))
	}
	mustSay(t, d.text("conditions"), "and 76 more volumes")
	mustSay(t, open(t, s, "/?q=nothing").text("volumes"), "None of 250 volumes matches.")
}

func TestBeforeTheFirstRoundAndOnANode(t *testing.T) {
	s := sources()
	s.Round = func() volume.Round { return volume.Round{} }
	s.Ready = func() error { return errors.New("the driver is starting") }
	d := open(t, s, "/")
	mustSay(t, d.text("pools"), "not over yet")
	mustSay(t, d.text("ready"), "not ready")
	mustSay(t, words(d.Node), "the driver is starting", "Last round never,")
	s.Round = nil
	if d := open(t, s, "/"); d.text("pools") != "" || d.text("node") == "" {
		t.Error("a node shows pools, or not itself")
	}
}

func TestThePageSaysThatAPoolIsOld(t *testing.T) {
	s := sources(seen("v"))
	round := s.Round()
	round.Pools[0].Unlisted = errors.New("it is not listed within 2m0s")
	s.Round = func() volume.Round { return round }
	mustSay(t, open(t, s, "/").text("pools"), "as an earlier round saw them: it is not listed within 2m0s")
	round.Pools[0].Err, round.Pools[0].State = errors.New("it hangs"), "SUSPENDED"
	mustSay(t, open(t, s, "/").text("pools"), "tank SUSPENDED", "it hangs")
}

func TestHealth(t *testing.T) {
	s := sources()
	s.Stuck = func() error { return errors.New("the sweep has made no step") }
	for path, want := range map[string]struct {
		code int
		text string
	}{"/readyz": {200, "ok\n"}, "/healthz": {503, "the sweep has made no step\n"}, "/metrics": {200, "metrics"}, "/other": {404, "404 page not found\n"}} {
		if r := get(t, s, http.MethodGet, path); r.Code != want.code || r.Body.String() != want.text {
			t.Errorf("%s: %d, %q", path, r.Code, r.Body)
		}
	}
}

func TestNothingCanBeWritten(t *testing.T) {
	for _, path := range []string{"/", "/metrics", "/healthz", "/readyz"} {
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
			if r := get(t, sources(), method, path); r.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, r.Code)
			}
		}
		if r := get(t, sources(), http.MethodHead, path); r.Code != http.StatusOK {
			t.Errorf("HEAD %s: %d", path, r.Code)
		}
	}
}

// What goes wrong in a request is in the daemon's log, and nowhere else.
func TestComplaintsAreLogged(t *testing.T) {
	var said bytes.Buffer
	s := sources()
	log := logrus.New()
	log.SetOutput(&said)
	s.Log, s.Metrics = log, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("on purpose") })
	server := httptest.NewUnstartedServer(nil)
	server.Config = Server(s)
	server.Start()
	r, err := http.Get(server.URL + "/metrics")
	if err == nil {
		r.Body.Close()
		t.Error("a panic was answered")
	}
	server.Close()
	mustSay(t, said.String(), "could not be answered", "on purpose")
}

// The browser is told to run nothing and to load nothing.
func TestThePolicy(t *testing.T) {
	r := get(t, sources(), http.MethodGet, "/")
	mustSay(t, r.Header().Get("Content-Security-Policy"), "default-src 'none'", "style-src 'sha256-", "frame-ancestors 'none'")
	if styles := open(t, sources(), "/").all("", "style"); len(styles) != 1 || styles[0].FirstChild.Data != pageCSS {
		t.Error("the style sheet is not the one that the policy names")
	}
	for n := range open(t, sources(seen("v")), "/").Descendants() {
		if attribute(n, "style") != "" || attribute(n, "src") != "" {
			t.Errorf("<%s> has a style or a source of its own", n.Data)
		}
	}
}

func TestWords(t *testing.T) {
	now := time.Now()
	for d, want := range map[time.Duration]string{
		0: "0s", 1500 * time.Millisecond: "1s", 59 * time.Second: "59s", 61 * time.Second: "1m", 25*time.Hour + 5*time.Minute: "25h5m",
	} {
		if got := age(now, now.Add(-d)); got != want {
			t.Errorf("%s is %q", d, got)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 5 << 30: "5.0 GiB", 512 << 40: "512 TiB", 1<<63 - 1: "8.0 EiB"} {
		if got := printBytes(n); got != want {
			t.Errorf("%d is %q", n, got)
		}
	}
	if got := text(strings.Repeat("ä", 1000)); len(got) > maxText+10 || !strings.HasSuffix(got, "ä …") {
		t.Errorf("a long text ends %q", got[len(got)-10:])
	}
}
