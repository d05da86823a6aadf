package harness

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Children watches from outside which programs a process starts, whichever
// library starts them, by the kernel's process events (cn_proc). What the
// children start themselves is listed apart.
type Children struct {
	socket *os.File
	parent int

	mu      sync.Mutex
	parents map[int]int // process -> its parent
	direct  []string
	others  []string
	seen    map[int]bool // executed, by process
	changed chan struct{}
	err     error
}

// Kernel interfaces: include/uapi/linux/cn_proc.h and connector.h.
const (
	cnIdxProc        = 1
	cnValProc        = 1
	procCnMcast      = 1
	procEventFork    = 0x1
	procEventExec    = 0x2
	netlinkHeader    = 16
	connectorHeader  = 20
	procEventHeader  = 16
	markerTimeout    = 10 * time.Second
	receiveBufferLen = 1 << 20
)

// WatchChildren begins to watch what the process with this pid starts.
func WatchChildren(pid int) (*Children, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_CONNECTOR)
	if err != nil {
		return nil, fmt.Errorf("the kernel has no process events: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: cnIdxProc}); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBufferLen); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	msg := make([]byte, netlinkHeader+connectorHeader+4)
	le := binary.LittleEndian
	le.PutUint32(msg[0:], uint32(len(msg)))
	le.PutUint16(msg[4:], unix.NLMSG_DONE)
	le.PutUint32(msg[netlinkHeader:], cnIdxProc)
	le.PutUint32(msg[netlinkHeader+4:], cnValProc)
	le.PutUint16(msg[netlinkHeader+16:], 4)
	le.PutUint32(msg[netlinkHeader+connectorHeader:], procCnMcast)
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	c := &Children{socket: os.NewFile(uintptr(fd), "process events"), parent: pid, parents: map[int]int{}, seen: map[int]bool{}, changed: make(chan struct{}, 1)}
	go c.receive()
	return c, nil
}

// Close ends the watch.
func (c *Children) Close() error { return c.socket.Close() }

func (c *Children) receive() {
	buf := make([]byte, 1<<16)
	for {
		n, err := c.socket.Read(buf)
		c.mu.Lock()
		if err != nil {
			c.err = err // ENOBUFS: events were lost, and a count would be wrong
			c.mu.Unlock()
			c.wake()
			return
		}
		c.event(buf[:n])
		c.mu.Unlock()
		c.wake()
	}
}

func (c *Children) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *Children) event(b []byte) {
	if len(b) < netlinkHeader+connectorHeader+procEventHeader+16 {
		return
	}
	e := b[netlinkHeader+connectorHeader:]
	le := binary.LittleEndian
	what, data := le.Uint32(e), e[procEventHeader:]
	switch what {
	case procEventFork: // parent pid, parent tgid, child pid, child tgid
		if child := int(le.Uint32(data[8:])); child == int(le.Uint32(data[12:])) {
			c.parents[child] = int(le.Uint32(data[4:]))
			delete(c.seen, child)
		}
	case procEventExec: // pid, tgid
		pid := int(le.Uint32(data[4:]))
		if c.seen[pid] {
			return
		}
		c.seen[pid] = true
		switch {
		case c.parents[pid] == c.parent:
			c.direct = append(c.direct, commandLine(pid))
		case c.descends(pid):
			c.others = append(c.others, commandLine(pid))
		}
	}
}

func (c *Children) descends(pid int) bool {
	for range 16 {
		parent, ok := c.parents[pid]
		if !ok {
			return false
		}
		if parent == c.parent {
			return true
		}
		pid = parent
	}
	return false
}

func commandLine(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(b) == 0 {
		return "(ended)"
	}
	return strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
}

// Take returns what the process has started since the last Take: its own
// children, and what those started. Every event up to now is in it.
func (c *Children) Take(ctx context.Context) (direct, others []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, markerTimeout)
	defer cancel()
	// Events arrive in order: once that of a process started now is there, so
	// are all before it.
	marker := exec.CommandContext(ctx, "true")
	if err := marker.Start(); err != nil {
		return nil, nil, err
	}
	pid := marker.Process.Pid
	if err := marker.Wait(); err != nil {
		return nil, nil, err
	}
	for {
		c.mu.Lock()
		if c.err != nil || c.seen[pid] {
			direct, others, err = c.direct, c.others, c.err
			c.direct, c.others = nil, nil
			c.mu.Unlock()
			return direct, others, err
		}
		c.mu.Unlock()
		select {
		case <-c.changed:
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("the kernel's process events do not arrive: %w", ctx.Err())
		}
	}
}
