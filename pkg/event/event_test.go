package event

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logs "github.com/sirupsen/logrus/hooks/test"
	"go.uber.org/goleak"

	"github.com/tarn-csi/tarn/pkg/volume"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const driver = "csi.tarn.example"

var pod = Reference{APIVersion: "v1", Kind: "Pod", Namespace: "tarn", Name: "tarn-controller-0", UID: "uid-of-pod"}

// world is a Teller with an API server, rounds that are made up, and a clock.
type world struct {
	*server
	*Teller
	round volume.Round
	now   time.Time
	log   *logs.Hook
}

func newWorld(t *testing.T, change ...func(*Config)) *world {
	t.Helper()
	s, client := newServer(t)
	log, hook := logs.NewNullLogger()
	w := &world{server: s, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), log: hook}
	w.round.Pools = []volume.PoolRound{{Name: "tank", Parent: "tank/csi"}}
	cfg := Config{Driver: driver, Pod: pod, API: client, Round: func() volume.Round { return w.round }, Log: log}
	for _, c := range change {
		c(&cfg)
	}
	w.Teller = New(cfg)
	return w
}

// add adds a published volume with conditions to the pool.
func (w *world) add(name string, conditions ...volume.Condition) *volume.Seen {
	p := &w.round.Pools[0]
	v := volume.Seen{Entry: volume.Entry{
		ID: "tank/" + name, Dataset: "tank/csi/" + name, Protocol: volume.NFS, PublishedTo: []string{"n@192.0.2.1"}, Conditions: conditions,
	}}
	p.Volumes = append(p.Volumes, v)
	return &p.Volumes[len(p.Volumes)-1]
}

// after is a pass some time later, with a round that has just ended.
func (w *world) after(d time.Duration) bool {
	w.now = w.now.Add(d)
	w.round.Ended = w.now
	return w.pass(context.Background(), w.now)
}

func (w *world) want(t *testing.T, want ...string) map[string]Event {
	t.Helper()
	told := w.told()
	if got := slices.Sorted(maps.Keys(told)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Fatalf("told %q, want %q", got, want)
	}
	return told
}

var closed = volume.Condition{Severity: volume.Inaccessible, Reason: volume.NotExported, Message: "the kernel does not export it"}

func TestAConditionIsToldOnTheClaim(t *testing.T) {
	w := newWorld(t)
	w.bind("tank/pvc-1", "shop", "data")
	v := w.add("pvc-1", closed)
	v.Trouble = "exportfs: no\nroom"
	w.after(0)
	w.want(t) // it may pass
	w.after(settle)
	e := w.want(t, "PersistentVolumeClaim shop/data NotExported x1")["PersistentVolumeClaim shop/data NotExported x1"]
	if e.Type != "Warning" || e.InvolvedObject.UID != "uid-of-data" || e.Source.Component != driver ||
		e.Message != "volume tank/pvc-1: the kernel does not export it; exportfs: no room" {
		t.Errorf("the event is %+v", e)
	}

	// Told once a condition, and again when it lasts.
	asked := w.count("POST events")
	for range 10 {
		w.after(time.Minute)
	}
	if n := w.count("POST events"); n != asked {
		t.Errorf("%d requests while nothing changes", n-asked)
	}
	w.after(repeat)
	e = w.want(t, "PersistentVolumeClaim shop/data NotExported x2")["PersistentVolumeClaim shop/data NotExported x2"]
	if e.LastTimestamp != w.now || !e.FirstTimestamp.Before(e.LastTimestamp) {
		t.Errorf("from %s to %s", e.FirstTimestamp, e.LastTimestamp)
	}

	// Another condition is another event, and so is the end.
	w.round.Pools[0].Volumes[0].Trouble = ""
	w.round.Pools[0].Volumes[0].Conditions = []volume.Condition{{Severity: volume.Inaccessible, Reason: volume.NotMounted, Message: "not mounted"}}
	w.after(time.Second)
	w.after(settle)
	w.round.Pools[0].Volumes[0].Conditions = nil
	w.after(time.Minute)
	e = w.want(t, "PersistentVolumeClaim shop/data NotExported x2", "PersistentVolumeClaim shop/data NotMounted x1",
		"PersistentVolumeClaim shop/data Recovered x1")["PersistentVolumeClaim shop/data Recovered x1"]
	if e.Type != "Normal" || e.Message != "NotMounted is over" {
		t.Errorf("the end is %+v", e)
	}
	asked = w.count("POST events")
	w.after(2 * repeat)
	if n := w.count("POST events"); n != asked || len(w.states) != 0 {
		t.Errorf("after the end: %d requests, %d states", n-asked, len(w.states))
	}
}

// What was told in the life before is counted, not told anew.
func TestAnotherLifeGoesOnCounting(t *testing.T) {
	w := newWorld(t)
	w.bind("tank/pvc-1", "shop", "data")
	w.add("pvc-1", closed)
	for range 3 {
		w.Teller = New(w.cfg)
		w.after(0)
		w.after(settle)
	}
	w.want(t, "PersistentVolumeClaim shop/data NotExported x3")
}

// What passes within a round or two is told nobody, nor is its end.
func TestWhatPassesIsNotTold(t *testing.T) {
	w := newWorld(t)
	w.bind("tank/pvc-1", "shop", "data")
	v := w.add("pvc-1")
	for range 5 {
		v.Conditions = []volume.Condition{closed}
		w.after(time.Second)
		v.Conditions = nil
		w.after(settle)
	}
	w.want(t)
	if len(w.states) != 0 || w.count("GET persistentvolumes") != 0 {
		t.Errorf("%d states", len(w.states))
	}
}

func TestWhomAnEventIsAbout(t *testing.T) {
	w := newWorld(t)
	// One without a claim, one of a name of its own, one that another cluster has, one of
	// another driver's PersistentVolume, one that an API server would not look for.
	w.bind("tank/free", "", "")
	w.add("free", closed)
	w.bind("tank/named", "shop", "named")
	w.volumes["other-name"] = w.volumes["named"]
	delete(w.volumes, "named")
	w.add("named", closed).Owner.Volume = "other-name"
	w.add("elsewhere", closed)
	w.bind("tank/foreign", "shop", "foreign")
	w.volumes["foreign"]["spec"].(map[string]any)["csi"].(map[string]any)["driver"] = "another"
	w.add("foreign", closed)
	w.add("Odd..", closed)
	ephemeral := w.add("csi-1", closed)
	ephemeral.Ephemeral, ephemeral.Owner.Pod, ephemeral.Owner.Namespace = true, "web-0", "shop"
	w.after(0)
	w.after(settle)
	told := w.want(t, "PersistentVolume /free NotExported x1", "PersistentVolumeClaim shop/named NotExported x1", "Pod shop/web-0 NotExported x1")
	if e := told["PersistentVolume /free NotExported x1"]; e.Metadata.Namespace != "default" || e.InvolvedObject.UID != "uid-of-free" {
		t.Errorf("the event is %+v", e)
	}
	// What is told nobody is asked about again only when it would be repeated.
	asked := w.count("GET persistentvolumes")
	w.after(time.Minute)
	if n := w.count("GET persistentvolumes"); n != asked || n != 4 {
		t.Errorf("asked %d times, then %d", asked, n)
	}
}

// A pool that is away is one event, with whatever number of volumes, and says
// nothing about any of them.
func TestAPoolIsToldOnce(t *testing.T) {
	w := newWorld(t)
	for i := range 1000 {
		w.bind(fmt.Sprintf("tank/pvc-%d", i), "shop", fmt.Sprintf("data-%d", i))
		w.add(fmt.Sprintf("pvc-%d", i))
	}
	w.round.Pools[0].Volumes[7].Conditions = []volume.Condition{closed}
	w.after(0)
	w.after(settle)
	c := volume.Condition{Severity: volume.Inaccessible, Reason: volume.PoolSuspended, Message: "pool tank is suspended"}
	p := &w.round.Pools[0]
	p.Condition = &c
	for i := range p.Volumes {
		p.Volumes[i].Conditions = []volume.Condition{c}
	}
	for range 10 {
		w.after(settle)
	}
	e := w.want(t, "PersistentVolumeClaim shop/data-7 NotExported x1", "Pod tarn/tarn-controller-0 PoolSuspended x1")["Pod tarn/tarn-controller-0 PoolSuspended x1"]
	if !strings.Contains(e.Message, "1000 volumes") || e.InvolvedObject != pod {
		t.Errorf("the event is %+v", e)
	}
	p.Condition = nil
	for i := range p.Volumes {
		p.Volumes[i].Conditions = nil
	}
	w.after(settle)
	w.want(t, "PersistentVolumeClaim shop/data-7 NotExported x1", "Pod tarn/tarn-controller-0 PoolSuspended x1",
		"PersistentVolumeClaim shop/data-7 Recovered x1", "Pod tarn/tarn-controller-0 Recovered x1")
}

// Neither is a server that does not work, which hides what is wrong with a volume.
func TestAServerIsToldOnce(t *testing.T) {
	w := newWorld(t)
	down := volume.Condition{Severity: volume.Inaccessible, Reason: volume.ServerUnavailable, Message: "the NFS server does not run"}
	for i := range 100 {
		w.add(fmt.Sprintf("pvc-%d", i), down).Trouble = "no server"
	}
	w.after(0)
	w.after(settle)
	e := w.want(t, "Pod tarn/tarn-controller-0 ServerUnavailable x1")["Pod tarn/tarn-controller-0 ServerUnavailable x1"]
	if !strings.Contains(e.Message, "100 published volumes of protocol nfs") {
		t.Errorf("the event is %+v", e)
	}
	// A pool that is away says nothing of the server.
	w.round.Pools[0].Condition = &volume.Condition{Severity: volume.Inaccessible, Reason: volume.PoolUnavailable}
	for i := range w.round.Pools[0].Volumes {
		w.round.Pools[0].Volumes[i].Conditions = []volume.Condition{*w.round.Pools[0].Condition}
	}
	w.after(time.Second)
	w.after(settle)
	w.want(t, "Pod tarn/tarn-controller-0 ServerUnavailable x1", "Pod tarn/tarn-controller-0 PoolUnavailable x1")
}

// Without its own name the driver tells of volumes alone.
func TestWithoutAPodNothingIsToldOfPools(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Pod = Reference{} })
	w.bind("tank/pvc-1", "shop", "data")
	w.add("pvc-1", closed)
	w.round.Pools[0].Condition = &volume.Condition{Severity: volume.Degraded, Reason: volume.PoolDegraded, Message: "pool tank is degraded"}
	w.after(0)
	w.after(settle)
	w.want(t, "PersistentVolumeClaim shop/data NotExported x1")
}

func TestALostVolumeIsTold(t *testing.T) {
	w := newWorld(t)
	w.bind("tank/pvc-1", "shop", "data")
	w.round.Lost = []volume.Entry{{ID: "tank/pvc-1", Dataset: "tank/csi/pvc-1"}}
	w.after(0)
	w.after(settle)
	told := w.want(t, "PersistentVolumeClaim shop/data DatasetMissing x1")
	if e := told["PersistentVolumeClaim shop/data DatasetMissing x1"]; !strings.Contains(e.Message, "tank/csi/pvc-1") {
		t.Errorf("the event is %+v", e)
	}
	w.round.Lost = nil
	w.add("pvc-1")
	w.after(settle)
	w.want(t, "PersistentVolumeClaim shop/data DatasetMissing x1", "PersistentVolumeClaim shop/data Recovered x1")
}

// However many volumes have something of their own, and whatever it is in each
// round, the cluster gets so many events an hour and no more.
func TestAFloodIsBounded(t *testing.T) {
	w := newWorld(t)
	for i := range 500 {
		w.bind(fmt.Sprintf("tank/pvc-%d", i), "shop", fmt.Sprintf("data-%d", i))
		w.add(fmt.Sprintf("pvc-%d", i), closed)
	}
	w.after(0)
	w.after(settle)
	if n := w.count("POST events"); n != burst {
		t.Errorf("%d at once", n)
	}
	for range 60 {
		w.after(time.Minute)
	}
	told := w.told()
	if n := w.count("POST events"); n > 385 || n < 380 || len(told) != n {
		t.Errorf("%d requests in an hour, %d events", n, len(told)) // nothing is repeated before all know
	}
	// What is wide does not wait behind them.
	w.round.Pools[0].Condition = &volume.Condition{Severity: volume.Degraded, Reason: volume.PoolDegraded, Message: "pool tank is degraded"}
	w.after(settle)
	w.after(settle)
	if _, ok := w.told()["Pod tarn/tarn-controller-0 PoolDegraded x1"]; !ok {
		t.Error("the pool waits")
	}
	// Volumes that are gone are forgotten.
	w.round.Pools[0].Volumes = nil
	w.after(settle)
	if len(w.states) != 1 {
		t.Errorf("%d states", len(w.states))
	}
}

func entries(h *logs.Hook) (list []string) {
	for _, e := range h.AllEntries() {
		list = append(list, fmt.Sprint(e.Message, ": ", e.Data[logrus.ErrorKey]))
	}
	return list
}

const notAllowed = `{"message":"events is forbidden: User \"x\" cannot create resource \"events\""}`

// Forbidden is said once, and is the end.
func TestForbiddenIsTheEnd(t *testing.T) {
	w := newWorld(t)
	w.bind("tank/pvc-1", "shop", "data")
	w.add("pvc-1", closed)
	w.refuse = func(*http.Request) (int, string) { return http.StatusForbidden, notAllowed }
	w.mayNot = map[string]bool{"get persistentvolumes": true, "create events": true}
	w.after(0)
	if w.after(settle) {
		t.Error("it goes on")
	}
	if list := entries(w.log); len(list) != 1 || !strings.Contains(list[0], "may not get persistentvolumes") {
		t.Errorf("the log has %q", list)
	}
	ended := make(chan struct{})
	go func() { w.Run(t.Context()); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("Run does not end")
	}
}

// A namespace that takes none, by its quota, because it is being deleted or gone, or
// since it takes no such object, keeps none from the others.
func TestANamespaceMayRefuse(t *testing.T) {
	w := newWorld(t)
	for i, namespace := range []string{"full", "going", "gone", "strict", "well"} {
		w.bind(fmt.Sprintf("tank/pvc-%d", i), namespace, "data")
		w.add(fmt.Sprintf("pvc-%d", i), closed)
	}
	w.refuse = func(r *http.Request) (int, string) {
		switch {
		case strings.Contains(r.URL.Path, "/full/"):
			return http.StatusForbidden, `{"message":"exceeded quota"}`
		case strings.Contains(r.URL.Path, "/going/"):
			return http.StatusForbidden, `{"message":"it is being terminated","details":{"causes":[{"reason":"NamespaceTerminating"}]}}`
		case strings.Contains(r.URL.Path, "/gone/"):
			return http.StatusNotFound, `{"message":"namespaces \"gone\" not found"}`
		case strings.Contains(r.URL.Path, "/strict/"):
			return http.StatusUnprocessableEntity, `{"message":"it is invalid"}`
		}
		return 0, ""
	}
	w.after(0)
	for range 3 {
		if !w.after(repeat) {
			t.Fatal("it ends")
		}
	}
	w.want(t, "PersistentVolumeClaim well/data NotExported x3")
	list := entries(w.log)
	for i, part := range []string{"exceeded quota", "not found", "it is invalid"} {
		if len(list) != 3 || !strings.Contains(list[i], part) {
			t.Errorf("the log has %q", list)
			break
		}
	}
}

// An API server that fails is asked less and less often, and told when it works.
func TestAServerThatFailsIsAskedLater(t *testing.T) {
	w := newWorld(t)
	for i := range 100 {
		w.bind(fmt.Sprintf("tank/pvc-%d", i), "shop", fmt.Sprintf("data-%d", i))
		w.add(fmt.Sprintf("pvc-%d", i), closed)
	}
	w.refuse = func(*http.Request) (int, string) { return http.StatusServiceUnavailable, `{"message":"etcd is away"}` }
	w.after(0)
	for range 720 {
		w.after(lookInterval)
	}
	if n := w.count("GET persistentvolumes"); n < 10 || n > 20 {
		t.Errorf("asked %d times in an hour", n)
	}
	if list := entries(w.log); len(list) != 1 || !strings.Contains(list[0], "etcd is away") {
		t.Errorf("the log has %q", list)
	}
	w.refuse = nil
	w.after(maxRest)
	if n := len(w.told()); n != burst {
		t.Errorf("%d are told", n)
	}
}

// silent is an API server that answers nothing.
type silent struct{ asked chan struct{} }

func (s silent) wait(ctx context.Context) error {
	s.asked <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}
func (s silent) Get(ctx context.Context, _ string, _ any) error          { return s.wait(ctx) }
func (s silent) Create(ctx context.Context, _ string, _, _ any) error    { return s.wait(ctx) }
func (s silent) Patch(ctx context.Context, _ string, _ any, _ any) error { return s.wait(ctx) }

// One that does not answer holds up nobody, and not the end.
func TestAServerThatHangsHoldsUpNobody(t *testing.T) {
	s := silent{asked: make(chan struct{}, 1)}
	w := newWorld(t, func(c *Config) { c.API = s })
	w.add("pvc-1", closed)
	w.after(0)
	w.now, w.round.Ended = w.now.Add(settle), w.now.Add(settle)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan bool, 1)
	go func() { ended <- w.pass(ctx, w.now) }()
	<-s.asked
	cancel()
	select {
	case on := <-ended:
		if !on || len(entries(w.log)) != 0 {
			t.Errorf("goes on: %t; the log has %q", on, entries(w.log))
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

// Names and messages are such as Kubernetes takes.
func TestNamesAndMessages(t *testing.T) {
	long := strings.Repeat("a", 229) + ".b"
	e := Make(driver, Reference{Name: long}, "k", "R", strings.Repeat("ü", maxMessage)+"\x00", time.Now())
	if len(e.Metadata.Name) > 253 || !objectName.MatchString(e.Metadata.Name) || strings.Contains(e.Metadata.Name, "..") || len(e.Message) != maxMessage {
		t.Errorf("%q, %d bytes", e.Metadata.Name, len(e.Message))
	}
	if m := plain("a\nb\x1b[1m\xff"); m != "a b [1m\uFFFD" {
		t.Errorf("the message is %q", m)
	}
	one := Make(driver, Reference{Name: "n"}, "k", "R", "", time.Now()).Metadata.Name
	for _, other := range []Event{
		Make("another", Reference{Name: "n"}, "k", "R", "", time.Now()),
		Make(driver, Reference{Name: "n", UID: "u"}, "k", "R", "", time.Now()),
		Make(driver, Reference{Name: "n"}, "l", "R", "", time.Now()),
		Make(driver, Reference{Name: "n"}, "k", "S", "", time.Now()),
	} {
		if other.Metadata.Name == one {
			t.Errorf("%+v has a name that another has", other)
		}
	}
}
