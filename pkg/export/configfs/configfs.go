// Package configfs writes to the kernel's configfs, where the target subsystem
// (LIO) is set up by making directories, writing attributes and linking items.
//
// It is a thin layer: it knows how a single operation must be done, and
// nothing of targets. What order the kernel wants is in pkg/export/iscsi, and
// what the kernel refuses is in the strict fake beside this package.
package configfs

// Root is where configfs is mounted, by systemd's sys-kernel-config.mount
// or by hand.
const Root = "/sys/kernel/config"

// MaxValueBytes is the longest value that one write can carry: configfs copies
// at most a page less one byte and drops the rest without an error
// (fill_write_buffer in fs/configfs/file.c).
const MaxValueBytes = 4095

// FS is a configfs. Paths are slash-separated, relative to its root and
// without "." or ".." elements; the root itself is ".".
//
// Every error is an *fs.PathError with the operation, the path and the errno,
// so errors.Is works with syscall.Errno and with fs.ErrNotExist. Its text
// never holds a value that was written.
type FS interface {
	// Mkdir makes an item. The kernel fills it with attributes and default
	// groups. Neither parents nor unknown names are made.
	Mkdir(path string) error
	// Rmdir removes an item together with its attributes and default groups.
	Rmdir(path string) error
	// Write stores value, which is one line without its newline, into an
	// attribute that exists, in one write(2). An empty value never reaches the
	// kernel and is EINVAL here.
	Write(path, value string) error
	// Read returns an attribute without the newline at its end.
	Read(path string) (string, error)
	// Symlink makes path a link to the item target, which is a path of this FS.
	Symlink(target, path string) error
	// Unlink removes a link, and nothing else.
	Unlink(path string) error
	// List returns what a directory holds, sorted by name.
	List(path string) ([]Entry, error)
}

// Kind is what an entry of a directory is.
type Kind int

// The kinds of entries.
const (
	Directory Kind = iota + 1
	Attribute
	Link
)

func (k Kind) String() string {
	switch k {
	case Directory:
		return "directory"
	case Attribute:
		return "attribute"
	case Link:
		return "link"
	}
	return "unknown"
}

// Entry is one name in a directory.
type Entry struct {
	Name string
	Kind Kind
	// Target is the path, in this FS, of the item that a Link names.
	Target string
}
