package app

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/fault"
)

func TestAnAddressInUseIsRefused(t *testing.T) {
	if l, err := listenHTTP(""); l != nil || err != nil {
		t.Errorf("no address: %v, %v", l, err)
	}
	l, err := listenHTTP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	if _, err := listenHTTP(taken); fault.Kind(err) != fault.Precondition || !strings.Contains(err.Error(), "another process listens on "+taken) {
		t.Errorf("taken: %v", err)
	}
}

// A page that is being written is finished; a client that reads none does not
// hold up the end.
func TestHTTPDrains(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	idle, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	asked, finish := make(chan struct{}), make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-finish
		_, _ = io.WriteString(w, "whole")
	})}
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- serveHTTP(ctx, l, server) }()
	page := make(chan string, 1)
	go func() {
		r, err := http.Get("http://" + l.Addr().String())
		if err != nil {
			page <- err.Error()
			return
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body)
		page <- string(body)
	}()
	<-asked
	end()
	close(finish)
	if got := <-page; got != "whole" {
		t.Errorf("the page is %q", got)
	}
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("it still listens")
	}
}

// A connection that cannot be accepted any more ends the server with an error.
func TestHTTPTellsWhyItEnded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := serveHTTP(t.Context(), l, &http.Server{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
