// Package link carries many byte streams over the one virtio-serial port between a guest and its host.
//
// The host opens streams, the guest accepts them. Each direction of a stream has a window: a reader that is slow stops
// its own writer and nobody else's.
package link

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

const (
	frameOpen   byte = iota + 1 // host to guest: a new stream
	frameData                   // payload: bytes
	frameEnd                    // no more data from this side
	frameReset                  // the stream is over in both directions
	frameCredit                 // payload: how many bytes the reader has taken

	headerSize = 9
	maxPayload = 32 << 10
	window     = 256 << 10
)

// ErrReset is what a read or write gets when the other side has closed the stream.
var ErrReset = errors.New("stream closed by the other side")

// Link is one end of the port.
type Link struct {
	port   io.ReadWriteCloser
	accept chan *Stream
	done   chan struct{}

	writing sync.Mutex

	mu      sync.Mutex
	streams map[uint32]*Stream
	last    uint32
	err     error
}

// New starts carrying streams over port. Both ends must have nothing unread on it.
func New(port io.ReadWriteCloser) *Link {
	l := &Link{port: port, accept: make(chan *Stream, 64), done: make(chan struct{}), streams: map[uint32]*Stream{}}
	go l.receive()
	return l
}

// Open starts a stream to the guest.
func (l *Link) Open() (*Stream, error) {
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return nil, l.err
	}
	l.last++
	s := newStream(l, l.last)
	l.streams[s.id] = s
	l.mu.Unlock()
	if err := l.send(frameOpen, s.id, nil); err != nil {
		return nil, err
	}
	return s, nil
}

// Accept waits for the next stream from the host.
func (l *Link) Accept() (*Stream, error) {
	select {
	case s := <-l.accept:
		return s, nil
	case <-l.done:
		return nil, l.err
	}
}

// Close ends the link and every stream on it.
func (l *Link) Close() error { return l.port.Close() }

// Done is closed when the link has ended.
func (l *Link) Done() <-chan struct{} { return l.done }

func (l *Link) send(kind byte, id uint32, payload []byte) error {
	frame := make([]byte, headerSize, headerSize+len(payload))
	frame[0] = kind
	binary.BigEndian.PutUint32(frame[1:], id)
	binary.BigEndian.PutUint32(frame[5:], uint32(len(payload)))
	l.writing.Lock()
	defer l.writing.Unlock()
	_, err := l.port.Write(append(frame, payload...))
	return err
}

func (l *Link) receive() {
	err := l.receiveFrames(bufio.NewReaderSize(l.port, 64<<10))
	l.mu.Lock()
	l.err = err
	streams := l.streams
	l.streams = nil
	l.mu.Unlock()
	close(l.done)
	for _, s := range streams {
		s.reset()
	}
}

func (l *Link) receiveFrames(r io.Reader) error {
	header := make([]byte, headerSize)
	for {
		if _, err := io.ReadFull(r, header); err != nil {
			return err
		}
		kind, id, size := header[0], binary.BigEndian.Uint32(header[1:]), binary.BigEndian.Uint32(header[5:])
		if size > maxPayload {
			return fmt.Errorf("frame of %d bytes: the port is out of step", size)
		}
		payload := make([]byte, size)
		if _, err := io.ReadFull(r, payload); err != nil {
			return err
		}
		if kind == frameOpen {
			s := newStream(l, id)
			l.mu.Lock()
			l.streams[id] = s
			l.mu.Unlock()
			l.accept <- s
			continue
		}
		l.mu.Lock()
		s := l.streams[id]
		l.mu.Unlock()
		if s != nil { // else: it was closed here while this frame was on its way
			s.deliver(kind, payload)
		}
	}
}

// Stream is one conversation; reads and writes may run at the same time.
type Stream struct {
	link *Link
	id   uint32

	mu      sync.Mutex
	changed *sync.Cond
	unread  []byte
	taken   int  // read, and not yet told to the writer
	credit  int  // bytes that may still be written
	ended   bool // the other side will send no more
	dead    bool // reset, closed, or the link is gone
}

func newStream(l *Link, id uint32) *Stream {
	s := &Stream{link: l, id: id, credit: window}
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *Stream) deliver(kind byte, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kind {
	case frameData:
		s.unread = append(s.unread, payload...)
	case frameEnd:
		s.ended = true
	case frameReset:
		s.dead = true
		s.link.forget(s.id)
	case frameCredit:
		if len(payload) == 4 {
			s.credit += int(binary.BigEndian.Uint32(payload))
		}
	}
	s.changed.Broadcast()
}

func (l *Link) forget(id uint32) {
	l.mu.Lock()
	delete(l.streams, id)
	l.mu.Unlock()
}

func (s *Stream) reset() {
	s.mu.Lock()
	s.dead = true
	s.changed.Broadcast()
	s.mu.Unlock()
}

// Read returns what was sent before a reset too, so that the last words of the other side are never lost.
func (s *Stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	for len(s.unread) == 0 && !s.ended && !s.dead {
		s.changed.Wait()
	}
	if len(s.unread) == 0 {
		defer s.mu.Unlock()
		if s.ended {
			return 0, io.EOF
		}
		return 0, ErrReset
	}
	n := copy(p, s.unread)
	s.unread = s.unread[n:]
	s.taken += n
	tell := 0
	if s.taken >= window/4 {
		tell, s.taken = s.taken, 0
	}
	s.mu.Unlock()
	if tell > 0 {
		credit := binary.BigEndian.AppendUint32(nil, uint32(tell))
		if err := s.link.send(frameCredit, s.id, credit); err != nil {
			return n, nil // the data is here; the next call tells
		}
	}
	return n, nil
}

// Write blocks while the other side's window is full.
func (s *Stream) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		s.mu.Lock()
		for s.credit == 0 && !s.dead {
			s.changed.Wait()
		}
		if s.dead {
			s.mu.Unlock()
			return written, ErrReset
		}
		n := min(len(p)-written, s.credit, maxPayload)
		s.credit -= n
		s.mu.Unlock()
		if err := s.link.send(frameData, s.id, p[written:written+n]); err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}

// CloseWrite tells the other side that nothing more comes.
func (s *Stream) CloseWrite() error { return s.link.send(frameEnd, s.id, nil) }

// Close ends the stream in both directions.
func (s *Stream) Close() error {
	s.mu.Lock()
	was := s.dead
	s.dead = true
	s.changed.Broadcast()
	s.mu.Unlock()
	s.link.forget(s.id)
	if was {
		return nil
	}
	return s.link.send(frameReset, s.id, nil)
}
