package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tarn-csi/tarn/hack/vm/internal/link"
)

const (
	bootTime = 300 * time.Second // a boot takes 15 s; a loaded machine much longer
	offTime  = 60 * time.Second  // for an orderly power off, then the power goes
)

// guest is one running qemu and the folder that belongs to it.
type guest struct {
	setup
	*options
	dir    string
	held   *os.File // the lock
	qemu   *exec.Cmd
	port   *os.File
	link   *link.Link
	listen net.Listener
	gone   chan struct{} // closed when qemu has ended

	mu     sync.Mutex
	reason error // why qemu was ended, when it did not end by itself
}

// boot starts a guest and waits until its agent answers. On an error nothing is left but, of a named guest, its folder
// with the console.
func boot(o *options) (*guest, error) {
	g := &guest{setup: newSetup(), options: o, gone: make(chan struct{})}
	if err := g.prepare(); err != nil {
		g.clean()
		return nil, err
	}
	if err := g.start(); err != nil {
		g.clean()
		return nil, err
	}
	return g, nil
}

func (g *guest) prepare() error {
	state, err := stateDir()
	if err != nil {
		return err
	}
	sweep(state)
	base := g.name
	if base == "" {
		base = "run-" + strconv.Itoa(os.Getpid())
	} else {
		base = "vm-" + base
	}
	dir := filepath.Join(state, base)
	if g.held, err = lock(dir); err != nil {
		return err
	}
	if g.held == nil {
		return fmt.Errorf("a guest named %s is running", g.name)
	}
	g.dir = dir
	os.Remove(g.dir + ".died")
	if err := os.RemoveAll(g.dir); err != nil {
		return err
	}
	if err := os.Mkdir(g.dir, 0o700); err != nil {
		return err
	}
	for i := range g.disks {
		d := &g.disks[i]
		if d.path == "" {
			d.path = filepath.Join(g.dir, fmt.Sprintf("disk%d", i))
		}
		if d.size == "" {
			continue
		}
		if err := makeDisk(*d); err != nil {
			return err
		}
	}
	return g.writeBoot()
}

// makeDisk makes a sparse file; one that is there stays as it is.
func makeDisk(d disk) error {
	size, err := bytes(d.size)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(d.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Truncate(size)
}

// writeBoot writes the initrd with what this boot needs to know.
func (g *guest) writeBoot() error {
	agent, err := os.ReadFile(g.agent)
	if err != nil {
		return err
	}
	shares := make([]string, len(g.shares))
	for i, dir := range g.shares {
		shares[i] = fmt.Sprintf("share%d:%s", i, filepath.Base(dir))
	}
	address := ""
	if m := netPattern.FindStringSubmatch(g.net); m != nil {
		address = "192.0.2." + m[2] + "/24"
	}
	if g.net == netHost {
		address = "10.99.0.15/24"
	}
	hostname := g.name
	if hostname == "" {
		hostname = "guest"
	}
	// With mmap a program's pages are read again each time it starts, and its code translated again.
	cache := "mmap"
	if g.cached {
		cache = "loose"
	}
	config := ""
	for _, kv := range [][2]string{
		{"TARN_TREE", g.tree}, {"TARN_HOSTNAME", hostname}, {"TARN_ADDRESS", address},
		{"TARN_SHARES", strings.Join(shares, " ")}, {"TARN_SERVICES", g.services}, {"TARN_9P_CACHE", cache},
	} {
		config += kv[0] + "=" + shellQuote(kv[1]) + "\n"
	}
	for _, kv := range g.env {
		key, value, _ := strings.Cut(kv, "=")
		config += "export " + key + "=" + shellQuote(value) + "\n"
	}
	return writeInitrd(filepath.Join(g.dir, "initrd"), filepath.Join(g.image, "initrd"), []cpioFile{
		{"init", 0o755, initrdInit},
		{"tarn", os.ModeDir | 0o755, nil},
		{"tarn/agent", 0o755, agent},
		{"tarn/config", 0o644, []byte(config)},
	})
}

// kernelArguments make an emulated guest faster. By far the most by norandmaps: qemu keeps translated code by its virtual
// address, so a library that is somewhere else in each process is translated again each time (a process start: 15 ms
// instead of 55). The others: no work-arounds for bugs of real processors, nothing cleared or checked twice.
const kernelArguments = "console=ttyS0 quiet panic=-1 norandmaps nokaslr mitigations=off no5lvl init_on_alloc=0 " +
	"transparent_hugepage=madvise no_timer_check cryptomgr.notests nowatchdog audit=0 apparmor=0 " +
	"random.trust_cpu=on rcupdate.rcu_expedited=1"

// machine has nothing that the guest's drivers would look at for nothing.
const machine = "q35,sata=off,smbus=off,i8042=off,vmport=off,hpet=off,usb=off"

func (g *guest) arguments(kvm bool) []string {
	file := func(name string) string { return filepath.Join(g.dir, name) }
	args := []string{"-machine", machine, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-nic", "none",
		"-smp", strconv.Itoa(g.cpus), "-m", strconv.Itoa(g.memory),
		"-kernel", filepath.Join(g.image, "vmlinuz"), "-initrd", file("initrd"), "-append", kernelArguments + clockArgument(),
		"-serial", "file:" + file("console.log"),
		"-device", "virtio-serial-pci", "-chardev", "socket,id=agent,fd=3", "-device", "virtserialport,chardev=agent,name=agent",
	}
	args = append(args, accelerator(kvm)...)

	for i, d := range g.disks {
		args = append(args, drive(fmt.Sprintf("disk%d", i), d.path, "discard=unmap")...)
	}
	// The root: everybody's image below, this guest's writes in a file that qemu has already removed. Last on the bus, so
	// that the disks are vda, vdb and so on.
	args = append(args, drive("root", filepath.Join(g.image, "root.ext4"), "snapshot=on")...)
	args = append(args, share("tree", g.tree)...)
	for i, dir := range g.shares {
		args = append(args, share(fmt.Sprintf("share%d", i), dir)...)
	}
	if m := netPattern.FindStringSubmatch(g.net); m != nil {
		other := map[string]string{"1": "2", "2": "1"}[m[2]]
		local, remote := filepath.Join(m[1], m[2]+".sock"), filepath.Join(m[1], other+".sock")
		os.Remove(local) // left by a guest that was killed
		args = append(args,
			"-netdev", fmt.Sprintf("dgram,id=net,local.type=unix,local.path=%s,remote.type=unix,remote.path=%s", local, remote),
			"-device", "virtio-net-pci,netdev=net,romfile=,mac=52:54:00:00:00:0"+m[2])
	}
	if g.net == netHost {
		args = append(args,
			"-netdev", "user,id=net,ipv6=off,net=10.99.0.0/24,host=10.99.0.1,dns=10.99.0.3",
			"-device", "virtio-net-pci,netdev=net,romfile=")
	}
	return args
}

func accelerator(kvm bool) []string {
	if kvm {
		return []string{"-accel", "kvm", "-cpu", "host"}
	}
	// An old processor: each newer feature (protection keys, SMAP, AVX) is more to emulate, and "max" takes twice the time.
	return []string{"-accel", "tcg,thread=multi,tb-size=512", "-cpu", "Nehalem"}
}

// drive is a disk that says it has written before it has: it is to survive the end of qemu, not that of the host.
func drive(id, path, more string) []string {
	return []string{
		"-drive", fmt.Sprintf("if=none,id=%s,file=%s,format=raw,cache=unsafe,%s", id, strings.ReplaceAll(path, ",", ",,"), more),
		"-device", fmt.Sprintf("virtio-blk-pci,drive=%s,serial=%s", id, id),
	}
}

func share(tag, dir string) []string {
	return []string{
		"-fsdev", fmt.Sprintf("local,id=%s,path=%s,security_model=none,multidevs=remap", tag, strings.ReplaceAll(dir, ",", ",,")),
		"-device", fmt.Sprintf("virtio-9p-pci,fsdev=%s,mount_tag=%s", tag, tag),
	}
}

func (g *guest) start() error {
	kvm := kvmWorks(g.setup, g.dir)
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(pair[1]), "agent")
	defer theirs.Close()
	if err := syscall.SetNonblock(pair[0], true); err != nil {
		return err
	}
	g.port = os.NewFile(uintptr(pair[0]), "agent")

	log, err := os.Create(filepath.Join(g.dir, "qemu.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	g.qemu = exec.Command("qemu-system-x86_64", g.arguments(kvm)...)
	g.qemu.ExtraFiles = []*os.File{theirs}
	g.qemu.Stdout, g.qemu.Stderr = log, log
	// Out of our terminal's reach, and gone when we are, however we end.
	g.qemu.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := g.qemu.Start(); err != nil {
		g.qemu = nil
		return err
	}
	go func() {
		g.qemu.Wait()
		close(g.gone)
	}()
	return nil
}

// up waits for the agent.
func (g *guest) up() error {
	g.port.SetReadDeadline(time.Now().Add(bootTime))
	greeting := make([]byte, len(link.Greeting))
	if _, err := io.ReadFull(g.port, greeting); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = &failure{exitDied, fmt.Sprintf("the guest was not up after %v", bootTime)}
			g.kill(err)
			return err
		}
		return g.death()
	}
	if string(greeting) != link.Greeting {
		return fmt.Errorf("the guest said %q", greeting)
	}
	g.port.SetReadDeadline(time.Time{})
	g.link = link.New(g.port)
	return nil
}

// because notes why the guest ends; the first reason is the one that counts.
func (g *guest) because(reason error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason == nil {
		g.reason = reason
	}
}

// kill ends qemu at once.
func (g *guest) kill(reason error) {
	g.because(reason)
	g.qemu.Process.Kill()
}

// death waits for the end of qemu and says why it was.
func (g *guest) death() error {
	select {
	case <-g.gone:
	case <-time.After(10 * time.Second):
		g.kill(&failure{exitDied, "the guest's agent is gone"})
		<-g.gone
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason != nil {
		return g.reason
	}
	text := "the guest died"
	if log := tail(filepath.Join(g.dir, "qemu.log"), 10); log != "" {
		text += "; qemu says:\n" + log
	}
	return &failure{exitDied, text}
}

// withConsole adds the end of the guest's console to the message.
func (g *guest) withConsole(err error) error {
	f := (*failure)(nil)
	if !errors.As(err, &f) || (f.status != exitDied && f.status != exitTimeout) {
		return err
	}
	return &failure{f.status, f.text + "\n--- end of the guest's console:\n" + tail(filepath.Join(g.dir, "console.log"), 60) + "\n---"}
}

// powerOff ends the guest in order ("poweroff"), or only lets it write back what the shares must have ("sync").
func (g *guest) powerOff(how string) error {
	g.because(&failure{exitDied, askedStop})
	defer g.kill(nil)
	stream, err := g.link.Open()
	if err != nil {
		return err
	}
	m := link.NewMessages(stream)
	if err := m.SendJSON(link.Request, link.Command{Off: how}); err != nil {
		return err
	}
	answer := make(chan error, 1)
	go func() {
		kind, body, err := m.Receive()
		if err == nil && kind == link.Failed {
			err = errors.New(string(body))
		}
		answer <- err
	}()
	select {
	case err := <-answer:
		if how == "sync" || (err != nil && !errors.Is(err, link.ErrReset)) {
			return err
		}
	case <-time.After(offTime):
		return fmt.Errorf("the guest did not %s within %v", how, offTime)
	}
	select { // the link ends a moment before qemu
	case <-g.gone:
	case <-time.After(offTime):
	}
	return nil
}

// end ends what is left of the guest and removes its folder.
func (g *guest) end() {
	if g.qemu != nil {
		g.kill(nil)
		<-g.gone
	}
	g.clean()
}

func (g *guest) clean() {
	if g.listen != nil {
		g.listen.Close()
	}
	if m := netPattern.FindStringSubmatch(g.net); m != nil && g.qemu != nil {
		os.Remove(filepath.Join(m[1], m[2]+".sock"))
	}
	if g.dir != "" {
		os.RemoveAll(g.dir)
		if g.name == "" { // another guest of the same name may be waiting with the file open
			os.Remove(g.dir + ".lock")
		}
	}
	if g.held != nil {
		g.held.Close()
	}
}
