package event

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tarn-csi/tarn/pkg/kube"
)

// server is an API server that knows volumes and events, and takes only what a
// real one takes.
type server struct {
	t *testing.T
	*httptest.Server

	mu      sync.Mutex
	volumes map[string]map[string]any // by name
	events  map[string]Event          // by namespace/name
	// asked counts the requests by method and kind of object.
	asked map[string]int
	// refuse answers a request instead; "" does not.
	refuse func(r *http.Request) (code int, status string)
	// mayNot are what a review of access denies, as "verb resource".
	mayNot map[string]bool
}

func newServer(t *testing.T) (*server, *kube.Client) {
	t.Helper()
	s := &server{t: t, volumes: map[string]map[string]any{}, events: map[string]Event{}, asked: map[string]int{}, mayNot: map[string]bool{}}
	s.Server = httptest.NewTLSServer(s)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"token": "secret", "namespace": "tarn",
		"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	account, err := kube.Open(dir, host, port)
	if err != nil {
		t.Fatal(err)
	}
	client := kube.NewClient(account, "tarn/test")
	t.Cleanup(func() {
		client.Close()
		s.Close()
		_ = account.Close()
	})
	return s, client
}

// bind makes a PersistentVolume of a volume, bound to a claim unless that is "".
func (s *server) bind(id, namespace, claim string) {
	_, name, _ := strings.Cut(id, "/")
	pv := map[string]any{
		"metadata": map[string]any{"name": name, "uid": "uid-of-" + name},
		"spec":     map[string]any{"csi": map[string]any{"driver": driver, "volumeHandle": id}},
		"status":   map[string]any{"phase": "Available"},
	}
	if claim != "" {
		pv["spec"].(map[string]any)["claimRef"] = map[string]any{"kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim, "uid": "uid-of-" + claim}
		pv["status"].(map[string]any)["phase"] = "Bound"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.volumes[name] = pv
}

// told are the events as "KIND NAMESPACE/NAME REASON xCOUNT".
func (s *server) told() map[string]Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]Event{}
	for _, e := range s.events {
		o := e.InvolvedObject
		all[fmt.Sprintf("%s %s/%s %s x%d", o.Kind, o.Namespace, o.Name, e.Reason, e.Count)] = e
	}
	return all
}

func (s *server) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[what]
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer secret" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if r.URL.Path == reviewPath {
		s.asked["POST reviews"]++
		s.review(w, r)
		return
	}
	what := "events"
	if len(parts) > 2 && parts[2] == "persistentvolumes" {
		what = parts[2]
	}
	s.asked[r.Method+" "+what]++
	if s.refuse != nil {
		if code, status := s.refuse(r); code != 0 {
			w.WriteHeader(code)
			_, _ = fmt.Fprint(w, status)
			return
		}
	}
	switch {
	case r.Method == http.MethodGet && what == "persistentvolumes" && len(parts) == 4:
		pv, ok := s.volumes[parts[3]]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		s.answer(w, pv)
	case r.Method == http.MethodPost && len(parts) == 5 && parts[4] == "events":
		s.create(w, r, parts[3])
	case r.Method == http.MethodPatch && len(parts) == 6 && parts[4] == "events":
		s.patch(w, r, parts[3]+"/"+parts[5])
	default:
		s.t.Errorf("nobody may ask %s %s", r.Method, r.URL.Path)
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (s *server) answer(w http.ResponseWriter, o any) {
	if err := json.NewEncoder(w).Encode(o); err != nil {
		s.t.Error(err)
	}
}

// read decodes strictly.
func (s *server) read(r *http.Request, kind string, into any) bool {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err != nil || r.Header.Get("Content-Type") != kind {
		s.t.Errorf("%s %s: %s, %v", r.Method, r.URL.Path, r.Header.Get("Content-Type"), err)
		return false
	}
	return true
}

func (s *server) create(w http.ResponseWriter, r *http.Request, namespace string) {
	var e Event
	if !s.read(r, "application/json", &e) {
		return
	}
	of := e.InvolvedObject.Namespace
	if of == "" {
		of = "default"
	}
	if e.Metadata.Namespace != namespace || of != namespace || e.APIVersion != "v1" || e.Kind != "Event" || !objectName.MatchString(e.Metadata.Name) ||
		e.Count != 1 || e.FirstTimestamp.IsZero() || e.LastTimestamp.Nanosecond() != 0 || len(e.Message) > maxMessage || e.Type != "Warning" && e.Type != "Normal" {
		s.t.Errorf("in %s: %+v", namespace, e)
	}
	key := namespace + "/" + e.Metadata.Name
	if _, there := s.events[key]; there {
		w.WriteHeader(http.StatusConflict)
		return
	}
	s.events[key] = e
	w.WriteHeader(http.StatusCreated)
	s.answer(w, e)
}

func (s *server) patch(w http.ResponseWriter, r *http.Request, key string) {
	e, there := s.events[key]
	if !there {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if !s.read(r, kube.MergePatch, &e) {
		return
	}
	s.events[key] = e
	s.answer(w, e)
}

func (s *server) review(w http.ResponseWriter, r *http.Request) {
	var review struct {
		APIVersion, Kind string
		Spec             struct {
			ResourceAttributes struct{ Verb, Resource string }
		}
	}
	if !s.read(r, "application/json", &review) {
		return
	}
	a := review.Spec.ResourceAttributes
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"status":{"allowed":%t}}`, !s.mayNot[a.Verb+" "+a.Resource])
	_, _ = w.Write(b.Bytes())
}
