package main

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"github.com/tarn-csi/tarn/hack/vm/internal/link"
)

// errLost is the end of a stream without an answer.
var errLost = errors.New("the guest is gone")

// command fills in what a person's shell would take for granted.
func command(s setup, args, env []string, tty bool) link.Command {
	c := link.Command{Args: args, Env: env, Dir: s.tree}
	// Only the tree is at the same place in the guest.
	if dir, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(s.tree, dir); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			c.Dir = dir
		}
	}
	if tty {
		size := windowSize()
		c.TTY = &size
		if term := os.Getenv("TERM"); term != "" {
			c.Env = append(c.Env, "TERM="+term)
		}
	}
	return c
}

// converse runs one command in a guest over stream, with our standard streams, and returns its exit status.
func converse(stream io.ReadWriter, c link.Command) (int, error) {
	m := link.NewMessages(stream)
	if err := m.SendJSON(link.Request, c); err != nil {
		return 0, errLost
	}
	taken := make(chan struct{}, 1)
	if c.TTY != nil {
		restore := rawTerminal()
		defer restore()
		winch := make(chan os.Signal, 1)
		signal.Notify(winch, syscall.SIGWINCH)
		defer signal.Stop(winch)
		go func() {
			for range winch {
				m.SendJSON(link.Winch, windowSize())
			}
		}()
	}
	// A terminal is not read unless it is asked for: a runner in the background would be stopped.
	if c.TTY != nil || !isTerminal(os.Stdin) {
		go sendInput(m, taken)
	} else {
		m.Send(link.StdinEnd, nil)
	}
	for {
		kind, body, err := m.Receive()
		if err != nil {
			return 0, errLost
		}
		switch kind {
		case link.Stdout:
			if _, err := os.Stdout.Write(body); err != nil {
				return 0, err
			}
		case link.Stderr:
			os.Stderr.Write(body)
		case link.Taken:
			taken <- struct{}{}
		case link.Exit:
			return int(body[0]), nil
		case link.Failed:
			return 0, &failure{exitDied, "the guest could not run it: " + string(body)}
		}
	}
}

// sendInput sends our input piece by piece: the next one when the command has taken the last.
func sendInput(m *link.Messages, taken <-chan struct{}) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := os.Stdin.Read(buffer)
		if n > 0 {
			if m.Send(link.Stdin, buffer[:n]) != nil {
				return
			}
			<-taken
		}
		if err != nil {
			m.Send(link.StdinEnd, nil)
			return
		}
	}
}

func termios(f *os.File, request uintptr, t *syscall.Termios) bool {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(t)))
	return errno == 0
}

func isTerminal(f *os.File) bool {
	var t syscall.Termios
	return termios(f, syscall.TCGETS, &t)
}

// rawTerminal hands every key to the guest's terminal; the result puts ours back.
func rawTerminal() (restore func()) {
	var old syscall.Termios
	if !termios(os.Stdin, syscall.TCGETS, &old) {
		return func() {}
	}
	raw := old
	raw.Iflag &^= syscall.IGNBRK | syscall.BRKINT | syscall.PARMRK | syscall.ISTRIP | syscall.INLCR | syscall.IGNCR |
		syscall.ICRNL | syscall.IXON
	raw.Oflag &^= syscall.OPOST
	raw.Lflag &^= syscall.ECHO | syscall.ECHONL | syscall.ICANON | syscall.ISIG | syscall.IEXTEN
	raw.Cc[syscall.VMIN], raw.Cc[syscall.VTIME] = 1, 0
	termios(os.Stdin, syscall.TCSETS, &raw)
	return func() { termios(os.Stdin, syscall.TCSETS, &old) }
}

func windowSize() link.Size {
	var w [4]uint16
	syscall.Syscall(syscall.SYS_IOCTL, os.Stdin.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&w)))
	if w[0] == 0 {
		return link.Size{Rows: 24, Cols: 80}
	}
	return link.Size{Rows: w[0], Cols: w[1]}
}
