// Package step marks the side effects of the driver on its host: where each
// begins, and where it has ended. In the driver that is shipped a mark is
// nothing at all. Built with the tag `faults`, a process can be stopped at each
// of them, or each can be made to fail or to hang; test/faults/steps does so.
package step

import "context"

// Kind is what a side effect is done with.
type Kind string

// The kinds of side effects. Reading a file is none; a child is one, whatever it
// does.
const (
	// Child is a child process, from its start to its end.
	Child Kind = "child"
	// Configfs is a write, mkdir, rmdir, symlink or unlink there.
	Configfs Kind = "configfs"
	// File makes, writes, renames or removes a file or directory.
	File Kind = "file"
	// Mount is a system call that changes the mount table.
	Mount Kind = "mount"
)

// Do is one side effect: its error, or that of what made it fail.
func Do(ctx context.Context, kind Kind, name string, effect func() error) error {
	end, err := Begin(ctx, kind, name)
	if err != nil {
		return err
	}
	defer end()
	return effect()
}
