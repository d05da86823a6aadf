package link

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// pair returns a host's and a guest's end.
func pair(t *testing.T) (host, guest *Link) {
	t.Helper()
	a, b := net.Pipe()
	host, guest = New(a), New(b)
	t.Cleanup(func() { host.Close(); guest.Close() })
	return host, guest
}

func open(t *testing.T, host, guest *Link) (h, g *Stream) {
	t.Helper()
	h, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	if g, err = guest.Accept(); err != nil {
		t.Fatal(err)
	}
	return h, g
}

func TestManyWindowsArriveWhole(t *testing.T) {
	h, g := open(pair2(t))
	want := bytes.Repeat([]byte("0123456789abcdef"), 5*window/16)
	go func() {
		g.Write(want)
		g.CloseWrite()
	}()
	got, err := io.ReadAll(h)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %d bytes, %v; want %d", len(got), err, len(want))
	}
}

func TestSlowReaderStopsOnlyItself(t *testing.T) {
	host, guest := pair(t)
	_, stuck := open(t, host, guest)
	go stuck.Write(make([]byte, 2*window)) // nobody reads the other end
	h, g := open(t, host, guest)
	go g.Write([]byte("hello"))
	got := make([]byte, 5)
	if _, err := io.ReadFull(h, got); err != nil || string(got) != "hello" {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestCloseEndsTheOtherSide(t *testing.T) {
	h, g := open(pair2(t))
	if _, err := g.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(h)
	if string(got) != "last words" || !errors.Is(err, ErrReset) {
		t.Fatalf("got %q, %v", got, err)
	}
	if _, err := h.Write([]byte("x")); !errors.Is(err, ErrReset) {
		t.Fatalf("write to a closed stream: %v", err)
	}
}

func TestLostPortEndsEverything(t *testing.T) {
	host, guest := pair(t)
	h, _ := open(t, host, guest)
	guest.Close()
	if _, err := h.Read(make([]byte, 1)); !errors.Is(err, ErrReset) {
		t.Fatalf("read: %v", err)
	}
	select {
	case <-host.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the host's end goes on")
	}
	if _, err := host.Open(); err == nil {
		t.Fatal("a stream opened on a lost port")
	}
}

func TestMessages(t *testing.T) {
	h, g := open(pair2(t))
	go NewMessages(g).SendJSON(Request, Command{Args: []string{"a b", ""}})
	kind, body, err := NewMessages(h).Receive()
	if err != nil || kind != Request || !bytes.Contains(body, []byte(`["a b",""]`)) {
		t.Fatalf("got %c %q, %v", kind, body, err)
	}
}

func pair2(t *testing.T) (*testing.T, *Link, *Link) {
	host, guest := pair(t)
	return t, host, guest
}
