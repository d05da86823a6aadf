package kube

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// chrooted is set in the test binary that is started again to change its root.
const chrooted = "TARN_TEST_CHROOT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(chrooted); dir != "" {
		os.Exit(readInAnotherRoot(dir))
	}
	goleak.VerifyTestMain(m)
}

// volume writes files as a kubelet does: each a link through ..data, which is
// replaced as a whole.
func volume(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	made, err := os.MkdirTemp(dir, "..2026_")
	must(t, err)
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(made, name), []byte(text), 0o600))
		if err := os.Symlink("..data/"+name, filepath.Join(dir, name)); !errors.Is(err, os.ErrExist) {
			must(t, err)
		}
	}
	old, oldErr := os.Readlink(filepath.Join(dir, "..data"))
	must(t, os.Symlink(filepath.Base(made), filepath.Join(dir, "..data_tmp")))
	must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	if oldErr == nil {
		must(t, os.RemoveAll(filepath.Join(dir, old)))
	}
}

// files are those of an account for a server.
func files(s *httptest.Server, token string) map[string]string {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return map[string]string{"token": token, "ca.crt": string(authority), "namespace": "tarn\n"}
}

// client is one with an account in a directory, which can be written again.
func client(t *testing.T, s *httptest.Server) (c *Client, dir string) {
	t.Helper()
	dir = t.TempDir()
	volume(t, dir, files(s, "first"))
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	must(t, err)
	a, err := Open(dir, host, port)
	must(t, err)
	if a == nil || a.Namespace != "tarn" {
		t.Fatalf("the account is %+v", a)
	}
	c = NewClient(a, "tarn/test")
	t.Cleanup(func() { c.Close(); must(t, a.Close()) })
	return c, dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOutsideAClusterThereIsNoAccount(t *testing.T) {
	dir := t.TempDir()
	volume(t, dir, map[string]string{"namespace": "tarn"})
	for _, c := range []struct{ dir, host, port string }{{dir, "", "443"}, {dir, "192.0.2.1", ""}, {dir + "/none", "192.0.2.1", "443"}} {
		if a, err := Open(c.dir, c.host, c.port); a != nil || err != nil {
			t.Errorf("%+v: %v, %v", c, a, err)
		}
	}
	if a, err := Open(t.TempDir(), "192.0.2.1", "443"); err == nil {
		t.Errorf("an empty account is %v", a)
	}
}

func TestRequests(t *testing.T) {
	var got []string
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, strings.Join([]string{r.Method, r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("Content-Type"), string(body)}, " "))
		_ = json.NewEncoder(w).Encode(map[string]string{"answer": "yes"})
	}))
	defer s.Close()
	c, _ := client(t, s)
	var into struct{ Answer string }
	must(t, c.Get(t.Context(), "/a", &into))
	must(t, c.Create(t.Context(), "/b", map[string]int{"n": 1}, nil))
	must(t, c.Patch(t.Context(), "/c", map[string]int{"n": 2}, nil))
	want := []string{
		"GET /a Bearer first  ",
		`POST /b Bearer first application/json {"n":1}`,
		`PATCH /c Bearer first application/merge-patch+json {"n":2}`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || into.Answer != "yes" {
		t.Errorf("asked\n%s\nanswered %+v", strings.Join(got, "\n"), into)
	}
}

// A new token is used from the next request on, and so is a new authority.
func TestTokenAndAuthorityRotate(t *testing.T) {
	var token atomic.Value
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { token.Store(r.Header.Get("Authorization")) })
	s := httptest.NewTLSServer(handler)
	defer s.Close()
	c, dir := client(t, s)
	must(t, c.Get(t.Context(), "/", nil))
	volume(t, dir, files(s, "second"))
	must(t, c.Get(t.Context(), "/", nil))
	if token.Load() != "Bearer second" {
		t.Errorf("the token is %v", token.Load())
	}
	changed := files(s, "third")
	changed["ca.crt"] = otherAuthority
	volume(t, dir, changed)
	var unknown x509.UnknownAuthorityError
	if err := c.Get(t.Context(), "/", nil); !errors.As(err, &unknown) || token.Load() != "Bearer second" {
		t.Errorf("a server of another authority: %v, got %v", err, token.Load())
	}
	volume(t, dir, files(s, "fourth"))
	must(t, c.Get(t.Context(), "/", nil))
	if token.Load() != "Bearer fourth" {
		t.Errorf("the token is %v", token.Load())
	}
	changed["ca.crt"] = "nothing"
	volume(t, dir, changed)
	if err := c.Get(t.Context(), "/", nil); err == nil || !strings.Contains(err.Error(), "ca.crt") {
		t.Errorf("without an authority: %v", err)
	}
}

func TestAnswersThatAreNoSuccess(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/status":
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","message":"no","details":{"causes":[{"reason":"NamespaceTerminating"}]}}`)
		case "/elsewhere":
			http.Redirect(w, r, "/status", http.StatusTemporaryRedirect)
		case "/text":
			_, _ = io.WriteString(w, "hello")
		case "/proxy":
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "<html>")
		}
	}))
	defer s.Close()
	c, _ := client(t, s)
	var e *Error
	if err := c.Get(t.Context(), "/status", nil); !errors.As(err, &e) || e.Code != 403 || e.Message != "no" || len(e.Causes) != 1 || e.Causes[0] != "NamespaceTerminating" {
		t.Errorf("refused: %v", err)
	}
	// Not followed.
	if err := c.Get(t.Context(), "/elsewhere", nil); Code(err) != http.StatusTemporaryRedirect {
		t.Errorf("redirected: %v", err)
	}
	if err := c.Get(t.Context(), "/proxy", nil); Code(err) != http.StatusBadGateway || !strings.Contains(err.Error(), "Bad Gateway") {
		t.Errorf("no Status: %v", err)
	}
	if err := c.Get(t.Context(), "/text", &struct{}{}); err == nil || Code(err) != 0 {
		t.Errorf("no JSON: %v", err)
	}
}

// Who waits for a server that does not answer waits for a while, and no longer
// than it wants to.
func TestAServerThatDoesNotAnswer(t *testing.T) {
	asked := make(chan struct{})
	s := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	defer s.Close()
	c, _ := client(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if err := c.Get(ctx, "/", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// The account is read after the process has changed its root, tokens that were
// written since included.
func TestTheAccountOutlivesAChangeOfTheRoot(t *testing.T) {
	dir := t.TempDir()
	volume(t, dir, map[string]string{"namespace": "tarn", "token": "first"})
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), chrooted+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); errors.Is(err, syscall.EPERM) {
		t.Skip("nobody may make a user namespace here")
	} else if err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	line := make([]byte, 100)
	n, err := out.Read(line) // it is in the other root
	if err != nil || string(line[:n]) != "first\n" {
		t.Errorf("it read %q, %v", line[:n], err)
	}
	volume(t, dir, map[string]string{"namespace": "tarn", "token": "second"})
	must(t, in.Close())
	rest, err := io.ReadAll(out)
	if err != nil || string(rest) != "second\n" {
		t.Errorf("it read %q, %v", rest, err)
	}
	must(t, cmd.Wait())
}

func readInAnotherRoot(dir string) int {
	a, err := Open(dir, "192.0.2.1", "443")
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "empty"), 0o700)
	}
	if err == nil {
		err = syscall.Chroot(filepath.Join(dir, "empty"))
	}
	if err == nil {
		err = os.Chdir("/")
	}
	for range 2 {
		var token string
		if err == nil {
			token, err = a.read("token")
		}
		if err != nil {
			_, _ = io.WriteString(os.Stderr, err.Error()+"\n")
			return 1
		}
		_, _ = io.WriteString(os.Stdout, token+"\n")
		_, _ = io.ReadAll(os.Stdin)
	}
	return 0
}

// otherAuthority has signed nothing here. Its key was never kept.
const otherAuthority = `-----BEGIN CERTIFICATE-----
MIIBdzCCAR2gAwIBAgIUMoNaRZFgldQ2GpwURpTdw5RKbHwwCgYIKoZIzj0EAwIw
EDEOMAwGA1UEAwwFb3RoZXIwIBcNMjYxMTMwMTY0NDU0WhgPMjEyNjExMDYxNjQ0
NTRaMBAxDjAMBgNVBAMMBW90aGVyMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
RMVuyZgx9ivVEL+qokHeagkW0DH8O0UFILZNopetwD7m2yTCm5hY+2+P7uoFSbZ0
C3RVuegEkYCzfEbMnHCTCqNTMFEwHQYDVR0OBBYEFIf5/pZ9AzyeSSbSaWR8L1mE
09aZMB8GA1UdIwQYMBaAFIf5/pZ9AzyeSSbSaWR8L1mE09aZMA8GA1UdEwEB/wQF
MAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIhANtMlqp/Y/tg6HNVz6ZfxIhf4xqfuPqj
lVhXKZHiMk5oAiA7F2uELd72mK2DHXJZcOkHbsKQsk8ugWYHUblLwdcEvg==
-----END CERTIFICATE-----`
