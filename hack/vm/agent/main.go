// Command agent runs inside a guest and does what the host asks for over the virtio-serial port: runs commands, several
// at once, and ends the guest.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/tarn-csi/tarn/hack/vm/internal/link"
)

func main() {
	fmt.Fprintln(os.Stderr, "agent:", serve())
	os.Exit(1)
}

// serve answers the host until that is impossible, and says why it is.
func serve() error {
	port, err := openPort("agent")
	if err != nil {
		return err
	}
	if _, err := io.WriteString(port, link.Greeting); err != nil {
		return err
	}
	l := link.New(port)
	for {
		stream, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			handle(link.NewMessages(stream))
			stream.CloseWrite()
		}()
	}
}

// openPort finds the virtio-serial port that the host named so.
func openPort(name string) (*os.File, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, path := range names {
		if content, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(content)) == name {
			return os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(path))), os.O_RDWR, 0)
		}
	}
	return nil, fmt.Errorf("no virtio-serial port named %q", name)
}

func handle(m *link.Messages) {
	status, err := answer(m)
	if err != nil {
		m.Send(link.Failed, []byte(err.Error()))
		return
	}
	m.Send(link.Exit, []byte{byte(status)})
}

func answer(m *link.Messages) (status int, err error) {
	kind, body, err := m.Receive()
	if err != nil {
		return 0, err
	}
	var command link.Command
	if err := json.Unmarshal(body, &command); err != nil || kind != link.Request {
		return 0, fmt.Errorf("not a request: %q", body)
	}
	if command.Off != "" {
		return 0, end(command.Off)
	}
	if len(command.Args) == 0 {
		return 0, errors.New("no command")
	}
	return run(m, command)
}

// run does one command and returns its exit status as a shell would give it.
func run(m *link.Messages, command link.Command) (int, error) {
	env := append(os.Environ(), command.Env...)
	program, status := look(command.Args[0], command.Dir, env)
	if status != 0 {
		fmt.Fprintf(m.Writer(link.Stderr), "%s: %s\n", command.Args[0],
			map[int]string{126: "not executable", 127: "command not found"}[status])
		return status, nil
	}
	cmd := &exec.Cmd{Path: program, Args: command.Args, Env: env, Dir: command.Dir,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}}

	var streams *streams
	var err error
	if command.TTY != nil {
		streams, err = terminal(cmd, *command.TTY)
	} else {
		streams, err = pipes(cmd)
	}
	if err != nil {
		return 0, err
	}
	defer streams.close()
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(m.Writer(link.Stderr), err)
		return 126, nil
	}
	streams.started()

	var copying sync.WaitGroup
	exited := make(chan struct{})
	for kind, from := range streams.output {
		copying.Add(1)
		go func() {
			defer copying.Done()
			forward(m.Writer(kind), from, exited)
		}()
	}
	go obey(m, cmd.Process.Pid, streams, exited)

	cmd.Wait()
	close(exited)
	for _, from := range streams.output {
		from.SetReadDeadline(time.Now()) // wakes the copiers: see forward
	}
	copying.Wait()
	state := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if state.Signaled() {
		return 128 + int(state.Signal()), nil
	}
	return state.ExitStatus(), nil
}

// look finds a program like a shell: 127 for one that is not there, 126 for one that cannot be run.
func look(name, dir string, env []string) (string, int) {
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = nil
		for i := len(env) - 1; i >= 0; i-- {
			if path, ok := strings.CutPrefix(env[i], "PATH="); ok {
				for _, folder := range filepath.SplitList(path) {
					candidates = append(candidates, filepath.Join(folder, name))
				}
				break
			}
		}
	}
	status := 127
	for _, path := range candidates {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if info, err := os.Stat(path); err == nil {
			if !info.IsDir() && info.Mode()&0o111 != 0 {
				return path, 0
			}
			status = 126
		}
	}
	return "", status
}

// streams are the ends of a command's standard streams that stay here.
type streams struct {
	input  *os.File
	output map[byte]*os.File
	size   *os.File   // the terminal, if it is one
	theirs []*os.File // the command's own ends
}

func (s *streams) started() {
	for _, f := range s.theirs {
		f.Close()
	}
}

func (s *streams) close() {
	s.input.Close()
	for _, f := range s.output {
		f.Close()
	}
}

func pipes(cmd *exec.Cmd) (*streams, error) {
	s := &streams{output: map[byte]*os.File{}}
	stdin, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, outW, errW
	s.input, s.theirs = input, []*os.File{stdin, outW, errW}
	s.output[link.Stdout], s.output[link.Stderr] = outR, errR
	return s, nil
}

func terminal(cmd *exec.Cmd, size link.Size) (*streams, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	var number, unlocked int32
	if err := ioctl(master, syscall.TIOCSPTLCK, unsafe.Pointer(&unlocked)); err != nil {
		return nil, err
	}
	if err := ioctl(master, syscall.TIOCGPTN, unsafe.Pointer(&number)); err != nil {
		return nil, err
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	resize(master, size)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr.Setctty = true
	return &streams{input: master, size: master, theirs: []*os.File{slave},
		output: map[byte]*os.File{link.Stdout: master}}, nil
}

func resize(terminal *os.File, size link.Size) {
	winsize := [4]uint16{size.Rows, size.Cols}
	ioctl(terminal, syscall.TIOCSWINSZ, unsafe.Pointer(&winsize))
}

func ioctl(f *os.File, request uintptr, arg unsafe.Pointer) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(arg))
	})
	if err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// forward copies a command's output until its end. A daemon that the command left behind may hold the pipe open for
// ever: once the command has exited, only what is in the pipe by then is taken.
func forward(to io.Writer, from *os.File, exited <-chan struct{}) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			<-exited
			drain(to, from, buffer)
			return
		}
		if err != nil {
			return
		}
	}
}

func drain(to io.Writer, from *os.File, buffer []byte) {
	from.SetReadDeadline(time.Time{})
	raw, err := from.SyscallConn()
	if err != nil {
		return
	}
	for range 64 { // two mebibytes: more than a pipe or a terminal holds
		var n int
		err := raw.Read(func(fd uintptr) bool {
			n, _ = syscall.Read(int(fd), buffer)
			return true // also when there is nothing: do not wait
		})
		if err != nil || n <= 0 {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// obey does what the host says while a command runs; when the host goes away the command is killed.
func obey(m *link.Messages, pid int, s *streams, exited <-chan struct{}) {
	// The host sends one piece of input at a time, so this never holds up the loop, whether the command reads or not.
	input := make(chan []byte, 2)
	defer close(input)
	go func() {
		for piece := range input {
			if piece == nil {
				s.input.Close()
				continue
			}
			s.input.Write(piece) // fails when the command has closed its input: nobody's fault
			m.Send(link.Taken, nil)
		}
	}()
	for {
		kind, body, err := m.Receive()
		if err != nil {
			select {
			case <-exited: // the number may be somebody else's by now
			default:
				syscall.Kill(-pid, syscall.SIGKILL)
			}
			return
		}
		switch kind {
		case link.Stdin:
			input <- body
		case link.StdinEnd:
			if s.size == nil {
				input <- nil
			}
		case link.Signal:
			select {
			case <-exited:
			default:
				syscall.Kill(-pid, syscall.Signal(body[0]))
			}
		case link.Winch:
			var size link.Size
			if s.size != nil && json.Unmarshal(body, &size) == nil {
				resize(s.size, size)
			}
		}
	}
}

// end prepares the end of the guest. The host stops waiting when it takes too long, so nothing here needs a deadline.
func end(how string) error {
	if how == "sync" {
		syscall.Sync()
		return nil
	}
	out, err := exec.Command(os.Getenv("TARN_TREE")+"/hack/vm/services", "poweroff").CombinedOutput()
	if err != nil {
		return fmt.Errorf("poweroff: %w: %s", err, out)
	}
	syscall.Sync()
	return syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
}
