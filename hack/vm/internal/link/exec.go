package link

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// Greeting is the first line on the port: the guest is up, frames follow.
const Greeting = "TARN-GUEST-UP\n"

// Kinds of message inside a stream. Request is the first one; Exit, Failed or the end of the stream is the last.
const (
	Request   byte = 'R' // host: a JSON Command
	Stdin     byte = 'I' // host: bytes
	StdinEnd  byte = 'E' // host
	Signal    byte = 'S' // host: one byte, its number
	Winch     byte = 'W' // host: a JSON Size
	Stdout    byte = 'O' // guest: bytes
	Stderr    byte = 'X' // guest: bytes
	Exit      byte = 'C' // guest: one byte, the status
	Taken     byte = 'T' // guest: the last Stdin is used up, the next one may come
	Failed    byte = 'F' // guest: why there is no status
	maxString      = 1 << 20
)

// Command is what the guest is asked to do.
type Command struct {
	Args []string
	Env  []string // KEY=VALUE, added to the guest's own
	Dir  string
	TTY  *Size // run on a terminal of this size

	// Off asks for the end of the guest instead of a command: "sync" only writes everything back, "poweroff" also
	// unmounts, exports pools and turns the machine off.
	Off string
}

// Size is a terminal's.
type Size struct{ Rows, Cols uint16 }

// Messages reads and writes messages on a stream. Writes may come from several goroutines.
type Messages struct {
	stream io.ReadWriter
	mu     sync.Mutex
}

// NewMessages speaks messages on stream.
func NewMessages(stream io.ReadWriter) *Messages { return &Messages{stream: stream} }

// Send writes one message.
func (m *Messages) Send(kind byte, body []byte) error {
	message := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)))
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.stream.Write(append(message, body...))
	return err
}

// SendJSON writes v as one message.
func (m *Messages) SendJSON(kind byte, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return m.Send(kind, body)
}

// Receive reads one message.
func (m *Messages) Receive() (kind byte, body []byte, err error) {
	var header [5]byte
	if _, err := io.ReadFull(m.stream, header[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(header[1:])
	if size > maxString {
		return 0, nil, fmt.Errorf("message of %d bytes", size)
	}
	body = make([]byte, size)
	_, err = io.ReadFull(m.stream, body)
	return header[0], body, err
}

// Writer returns a writer that sends everything as messages of one kind.
func (m *Messages) Writer(kind byte) io.Writer { return kindWriter{m, kind} }

type kindWriter struct {
	messages *Messages
	kind     byte
}

func (w kindWriter) Write(p []byte) (int, error) {
	if err := w.messages.Send(w.kind, p); err != nil {
		return 0, err
	}
	return len(p), nil
}
