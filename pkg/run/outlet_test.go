package run

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
)

// starved is a writer of a process that gets no processor for long.
type starved struct {
	bytes.Buffer
	pause time.Duration
}

func (s *starved) Write(p []byte) (int, error) {
	time.Sleep(s.pause)
	s.pause = 0
	return s.Buffer.Write(p)
}

// ReadFrom is not the buffer's: it would read without Write.
func (s *starved) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{s}, r)
}

// What a child has said is read to its end, however late.
func TestOutputIsWhole(t *testing.T) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	const size = 60000 // a pipe holds it, and one read takes a part
	for _, command := range []string{"head -c 60000 /dev/zero", "sleep 60 & head -c 60000 /dev/zero"} {
		stdout := &starved{pause: pipeGrace + 200*time.Millisecond}
		k, err := New(log).start(t.Context(), Cmd{Tool: "sh", Args: []string{"-c", command}}, nil, stdout)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := k.wait(context.Background()); err != nil {
			t.Errorf("%s: %v", command, err)
		}
		if stdout.Len() != size {
			t.Errorf("%s: %d bytes of %d", command, stdout.Len(), size)
		}
		if took := time.Since(began); took > 10*pipeGrace {
			t.Errorf("%s: took %s", command, took)
		}
		_ = killGroup(k.cmd.Process.Pid) // what sleeps
	}
}
