package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const probeTime = 20 * time.Second

// kvmWorks tells whether the image's kernel really runs under KVM here: /dev/kvm may exist and it hangs all the same.
// The answer holds until the machine boots again. dir is for files.
func kvmWorks(s setup, dir string) bool {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	f.Close()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return false
	}
	path := filepath.Join(s.cache, "vm-kvm")
	question := strings.TrimSpace(string(boot)) + " " + filepath.Base(s.image) + " "
	if known, err := os.ReadFile(path); err == nil {
		if answer, ok := strings.CutPrefix(string(known), question); ok {
			return answer == "yes"
		}
	}
	works := probe(s, filepath.Join(dir, "probe"))
	answer := "no"
	if works {
		answer = "yes"
	}
	// Two runners may probe at once: each writes the same, whole.
	temp, err := os.CreateTemp(s.cache, "vm-kvm-*")
	if err != nil {
		return works
	}
	temp.WriteString(question + answer)
	temp.Close()
	os.Rename(temp.Name(), path)
	return works
}

// probe boots the image's kernel as far as its first process, with an initrd in that file.
func probe(s setup, initrd string) bool {
	err := writeInitrd(initrd, filepath.Join(s.image, "initrd"), []cpioFile{
		{"init", 0o755, initrdInit},
		{"tarn", os.ModeDir | 0o755, nil},
		{"tarn/probe", 0o644, nil},
	})
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	args := append(accelerator(true), "-machine", machine, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-nic", "none", "-smp", "2", "-m", "512", "-kernel", filepath.Join(s.image, "vmlinuz"), "-initrd", initrd,
		"-append", kernelArguments, "-serial", "stdio")
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	qemu.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, _ := qemu.Output()
	return strings.Contains(string(out), "TARN-PROBE-ALIVE")
}
