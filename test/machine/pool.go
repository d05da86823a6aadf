package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Pool is a pool on a file.
type Pool struct {
	Name  string
	Bytes int64
	// Mountpoint is the name of a folder in which the pool is mounted; "" leaves
	// it unmounted.
	Mountpoint string
	// Options are further ones of zpool create.
	Options []string

	dir   string
	zvols int
}

// Dir is where the pool is mounted.
func (p *Pool) Dir() string { return filepath.Join(p.dir, p.Mountpoint) }

// Up makes the pool, in a guest only. What a run that was killed has left of it
// goes first.
func (p *Pool) Up() error {
	if os.Getenv("TARN_GUEST") != "1" {
		return errors.New("these tests change the machine: run them in a guest (hack/guest-tests)")
	}
	if Run("zpool", "list", p.Name) == nil {
		if err := Run("zpool", "destroy", "-f", p.Name); err != nil {
			return err
		}
	}
	var err error
	if p.dir, err = os.MkdirTemp("", p.Name+"-"); err != nil {
		return err
	}
	file, mountpoint := filepath.Join(p.dir, "disk"), "none"
	if p.Mountpoint != "" {
		mountpoint = p.Dir()
	}
	args := append([]string{"create", "-m", mountpoint}, p.Options...)
	return errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, p.Bytes), Run("zpool", append(args, p.Name, file)...))
}

// Down destroys it.
func (p *Pool) Down() error {
	if p.dir == "" {
		return nil
	}
	if err := Run("zpool", "destroy", "-f", p.Name); err != nil {
		return err
	}
	return os.RemoveAll(p.dir)
}

// Run runs tests in the pool, between what else must be done and undone, and
// returns what to exit with.
func (p *Pool) Run(m *testing.M, before, after func() error) int {
	err := p.Up()
	if err == nil {
		err = before()
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	if err = errors.Join(err, after(), p.Down()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Nothing is there to be done before or after the tests.
func Nothing() error { return nil }

// Zvol makes a sparse zvol that goes with the test, and returns its name and
// its device, which is there.
//
// volmode=dev must be an option of the pool: given to the zvol, the device is
// made, removed and made again.
func (p *Pool) Zvol(t testing.TB, sizeBytes int64) (name, device string) {
	t.Helper()
	p.zvols++
	name = fmt.Sprintf("%s/v%d", p.Name, p.zvols)
	Sh(t, "zfs", "create", "-s", "-o", "volblocksize=16k", "-V", fmt.Sprint(sizeBytes), name)
	p.DestroyAtEnd(t, name)
	return name, Device(t, name)
}

// DestroyAtEnd destroys a dataset with its snapshots when the test has ended.
func (p *Pool) DestroyAtEnd(t testing.TB, dataset string) {
	t.Cleanup(func() {
		Eventually(t, "destroying "+dataset, func() bool { return Run("zfs", "destroy", "-r", dataset) == nil })
	})
}

// Device waits for the device of a zvol, and for udev to have done with it: an
// event of the zvol that had the number before may be late.
func Device(t testing.TB, zvol string) string {
	t.Helper()
	device := "/dev/zvol/" + zvol
	Eventually(t, "quiet in udev", func() bool { return Run("udevadm", "settle", "--timeout=60") == nil })
	Eventually(t, device, func() bool {
		st, err := os.Stat(device)
		return err == nil && st.Mode()&os.ModeDevice != 0
	})
	return device
}
