//go:build !guest && !faults

package faults

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tarn-csi/tarn/test/inprocess"
	"github.com/tarn-csi/tarn/test/inprocess/storage"
)

// world is a driver with everything around it in this process.
type world struct {
	*inprocess.Driver
	conn *grpc.ClientConn
	v1   plugin
	log  logText
}

func start(t *testing.T, change ...func(*inprocess.Parts)) *world {
	t.Helper()
	w := &world{Driver: inprocess.Start(t, change...)}
	conn, err := grpc.NewClient(w.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	w.conn, w.v1 = conn, inV1(conn)
	w.Logger().SetOutput(&w.log)
	w.Logger().SetFormatter(&logrus.JSONFormatter{})
	return w
}

// datasets are those below the parent whose names contain a word.
func (w *world) datasets(word string) (list []string) {
	for _, name := range w.Storage.Pool.Names() {
		if below, ok := strings.CutPrefix(name, storage.Parent+"/"); ok && strings.Contains(below, word) {
			list = append(list, name)
		}
	}
	return list
}

// logText is a log that is read while it is written.
type logText struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// lines are those that contain all the words.
func (l *logText) lines(words ...string) (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		all := true
		for _, word := range words {
			all = all && strings.Contains(line, word)
		}
		if all {
			list = append(list, line)
		}
	}
	return list
}

// versions are a driver in csi.v0 and in csi.v1.
func versions(conn grpc.ClientConnInterface) []plugin { return []plugin{inV0(conn), inV1(conn)} }

// eachVersion runs a test in both versions.
func eachVersion(t *testing.T, conn grpc.ClientConnInterface, run func(*testing.T, plugin)) {
	t.Helper()
	for _, p := range versions(conn) {
		t.Run(p.version, func(t *testing.T) { run(t, p) })
	}
}
