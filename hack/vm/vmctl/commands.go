package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Ends of a guest that somebody wanted.
const (
	askedStop = "the guest was stopped"
	askedKill = "the guest was killed"
)

// run boots a guest, runs the command in it and ends it; with --daemon a supervisor of its own keeps it.
func run(args []string) (int, error) {
	o, err := parseRun(args)
	if err != nil {
		return 0, err
	}
	if o.daemon {
		return 0, startDaemon(args)
	}
	g, err := boot(o)
	if err != nil {
		return 0, err
	}
	defer g.end()
	stopWatch := g.watch()
	defer stopWatch()

	status, err := g.runCommand()
	if err != nil {
		return 0, g.withConsole(err)
	}
	return status, nil
}

func (g *guest) runCommand() (int, error) {
	if err := g.up(); err != nil {
		return 0, err
	}
	if err := g.serve(); err != nil {
		return 0, err
	}
	stream, err := g.link.Open()
	if err != nil {
		return 0, g.death()
	}
	status, err := converse(stream, command(g.setup, g.command, nil, g.tty))
	if errors.Is(err, errLost) {
		return 0, g.death()
	}
	if err != nil {
		return 0, err
	}
	how := "sync"
	for _, d := range g.disks {
		if filepath.Dir(d.path) != g.dir {
			how = "poweroff" // somebody wants to find the disk in order
		}
	}
	if err := g.powerOff(how); err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
	}
	return status, nil
}

// watch ends the guest when its time is up or we are told to stop.
func (g *guest) watch() (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			g.kill(&failure{128 + int(s.(syscall.Signal)), "stopped by a signal: " + s.String()})
		case <-time.After(g.timeout):
			g.kill(&failure{exitTimeout, fmt.Sprintf("timeout: not done after %v (--timeout)", g.timeout)})
		case <-g.gone:
		case <-done:
		}
	}()
	return func() { close(done); signal.Stop(signals) }
}

// serve takes commands for a named guest on its socket. The first line says what: exec, stop or kill.
func (g *guest) serve() error {
	if g.name == "" {
		return nil
	}
	var err error
	g.listen, err = net.Listen("unix", filepath.Join(g.dir, "socket"))
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := g.listen.Accept()
			if err != nil {
				return
			}
			go g.answer(conn.(*net.UnixConn))
		}
	}()
	return nil
}

func (g *guest) answer(conn *net.UnixConn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	word, err := in.ReadString('\n')
	if err != nil {
		return
	}
	switch strings.TrimSpace(word) {
	case "exec":
		stream, err := g.link.Open()
		if err != nil {
			return
		}
		go func() {
			io.Copy(stream, in)
			stream.Close() // the caller has gone: so does its command
		}()
		io.Copy(conn, stream)
	case "stop":
		g.powerOff("poweroff")
		<-g.gone
	case "kill":
		g.kill(&failure{exitDied, askedKill})
		<-g.gone
	}
}

// startDaemon starts a supervisor and waits until its guest is up.
func startDaemon(args []string) error {
	report, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, append([]string{"supervise"}, args...)...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	theirs.Close()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for s := range signals {
			cmd.Process.Signal(s)
		}
	}()
	answer, err := io.ReadAll(report)
	if err != nil {
		return err
	}
	if string(answer) == "up" {
		return nil
	}
	state := cmd.Wait()
	status := 1
	if exit := (*exec.ExitError)(nil); errors.As(state, &exit) {
		status = exit.ExitCode()
	}
	return &failure{status, string(answer)}
}

// supervise keeps a daemon's guest until its end and reports on file 3 when it is up.
func supervise(args []string) (int, error) {
	report := os.NewFile(3, "report")
	g, err := superviseBoot(args)
	if err != nil {
		report.WriteString(err.Error())
		return 0, err
	}
	if _, err := report.WriteString("up"); err != nil {
		g.end() // nobody is waiting any more
		return 0, err
	}
	report.Close()
	<-g.gone
	g.remember()
	return 0, nil
}

func superviseBoot(args []string) (*guest, error) {
	o, err := parseRun(args)
	if err != nil {
		return nil, err
	}
	g, err := boot(o)
	if err != nil {
		return nil, err
	}
	g.watch()
	if err := g.up(); err != nil {
		err = g.withConsole(err)
		g.end()
		return nil, err
	}
	if err := g.serve(); err != nil {
		g.end()
		return nil, err
	}
	return g, nil
}

// remember leaves a note when a daemon's guest has ended without being asked to, for those who look for it.
func (g *guest) remember() {
	err := g.death()
	f := (*failure)(nil)
	asked := errors.As(err, &f) && (f.text == askedStop || f.text == askedKill)
	note := []byte(g.withConsole(err).Error())
	if !asked {
		os.WriteFile(g.dir+".died", note, 0o600)
	}
	g.clean()
}

// dial speaks with the supervisor of a named guest.
func dial(name, word string) (*net.UnixConn, error) {
	if !namePattern.MatchString(name) {
		return nil, usage("%q is not a guest's name", name)
	}
	state, err := stateDir()
	if err != nil {
		return nil, err
	}
	base := filepath.Join(state, "vm-"+name)
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(base, "socket"), Net: "unix"})
	if err != nil {
		if note, err := os.ReadFile(base + ".died"); err == nil {
			return nil, &failure{exitDied, fmt.Sprintf("guest %s does not run: %s", name, note)}
		}
		return nil, &failure{exitDied, fmt.Sprintf("guest %s does not run", name)}
	}
	if _, err := io.WriteString(conn, word+"\n"); err != nil {
		return nil, err
	}
	return conn, nil
}

// execIn runs one more command in a named guest.
func execIn(args []string) (int, error) {
	timeout, env, tty := defaultTimeout, []string(nil), false
	options := func(args []string) ([]string, error) {
		return flags(args, map[string]func(){"--tty": func() { tty = true }},
			map[string]func(string) error{"--timeout": seconds(&timeout), "--env": addEnv(&env)})
	}
	args, err := options(args) // before the name and after it
	if err != nil {
		return 0, err
	}
	name := ""
	if len(args) > 0 {
		name = args[0]
		if args, err = options(args[1:]); err != nil {
			return 0, err
		}
	}
	if len(args) == 0 {
		return 0, usage("exec [--timeout SECONDS] [--env K=V]... [--tty] NAME -- COMMAND [ARG]...")
	}
	conn, err := dial(name, "exec")
	if err != nil {
		return 0, err
	}
	defer conn.Close()

	// Our end is the end of the command: the agent kills it when the stream is gone.
	ended := make(chan error, 1)
	go func() {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		select {
		case s := <-signals:
			ended <- &failure{128 + int(s.(syscall.Signal)), "stopped by a signal: " + s.String()}
		case <-time.After(timeout):
			ended <- &failure{exitTimeout, fmt.Sprintf("timeout: not done after %v (--timeout)", timeout)}
		}
		conn.Close()
	}()
	status, err := converse(conn, command(newSetup(), args, env, tty))
	if errors.Is(err, errLost) {
		select {
		case err = <-ended:
		default:
			err = lost(name)
		}
	}
	return status, err
}

// lost says why a named guest is gone.
func lost(name string) error {
	if err := waitFree(name); err != nil {
		return err
	}
	state, err := stateDir()
	if err != nil {
		return err
	}
	note, err := os.ReadFile(filepath.Join(state, "vm-"+name+".died"))
	if err != nil {
		note = []byte(askedStop)
	}
	return &failure{exitDied, fmt.Sprintf("guest %s: %s", name, note)}
}

// waitFree waits until the supervisor of a guest that is gone has cleaned up.
func waitFree(name string) error {
	state, err := stateDir()
	if err != nil {
		return err
	}
	for range 300 {
		held, err := lock(filepath.Join(state, "vm-"+name))
		if err != nil {
			return err
		}
		if held != nil {
			return held.Close()
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("guest %s does not end", name)
}

// stop ends a named guest: in order, or as a power loss does.
func stop(args []string) (int, error) {
	word := "stop"
	var names []string
	for _, arg := range args {
		switch {
		case arg == "--kill":
			word = "kill"
		case strings.HasPrefix(arg, "-"):
			return 0, usage("unknown option %s", arg)
		default:
			names = append(names, arg)
		}
	}
	if len(names) == 0 {
		return 0, usage("stop [--kill] NAME...")
	}
	for _, name := range names {
		conn, err := dial(name, word)
		if err != nil {
			return 0, err
		}
		conn.SetReadDeadline(time.Now().Add(2 * offTime))
		_, err = io.Copy(io.Discard, conn)
		conn.Close()
		if err != nil {
			return 0, fmt.Errorf("guest %s did not stop: %w", name, err)
		}
		if err := waitFree(name); err != nil {
			return 0, err
		}
	}
	return 0, nil
}
