package zfs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/run"
)

// copyPrefix marks a copy that is not whole, or not yet what was asked for. No
// volume's name begins with a dot, so it is never taken for one.
const copyPrefix = ".copy."

// PartialName is what Copy calls a dataset until it is whole: a sibling of it.
func PartialName(dataset string) string {
	i := strings.LastIndexByte(dataset, '/') + 1
	return dataset[:i] + copyPrefix + dataset[i:]
}

// PartialOf returns the dataset that an unfinished copy is to become; false when
// the name is none of an unfinished copy.
func PartialOf(name string) (string, bool) {
	i := strings.LastIndexByte(name, '/') + 1
	rest, ok := strings.CutPrefix(name[i:], copyPrefix)
	return name[:i] + rest, ok
}

// Copy makes s.Name with the data of a snapshot and nothing in common with it.
// Properties, VolumeBytes and Thin are as for Clone, except that a filesystem
// needs no canmount. The dataset then has one snapshot, named as the source's.
//
// It takes as long as the data does, and ends with ctx. Until it is whole and
// has everything that s says, it is the dataset PartialName(s.Name); a repeated
// call goes on with that where the last one was cut off, if it is of the same
// snapshot and has the same properties, and else begins anew. So what is called
// s.Name is whole. A partial dataset would not be told from a whole one by what
// is set on it, and both are in a listing: `zfs receive` sets all properties
// before the first byte, and ends well although the kernel refused one of them.
//
// ErrExists, ErrNotExist (the snapshot), ErrNoParent, ErrNoSpace, ErrNoKey,
// ErrBadValue; after an error there may be a partial dataset.
func (c *Client) Copy(ctx context.Context, snapshot string, s Spec) error {
	source, err := c.Get(ctx, snapshot)
	if errors.Is(err, ErrNoParent) {
		err = recast(err, ErrNotExist) // as Clone says it
	}
	if err != nil {
		return err
	}
	if !source.Snapshot() || (source.Type() == Volume) != (s.VolumeBytes > 0) {
		return &causeError{cause: ErrBadValue, err: fmt.Errorf("%s cannot be made from %s", s.Name, snapshot)}
	}
	if _, err := c.Get(ctx, s.Name); !errors.Is(err, ErrNotExist) {
		if err == nil {
			err = &causeError{cause: ErrExists, err: fmt.Errorf("cannot copy to '%s': dataset already exists", s.Name)}
		}
		return err
	}
	if err := c.complete(ctx, source, s); err != nil {
		return err
	}
	return c.Rename(ctx, PartialName(s.Name), s.Name)
}

// DropCopy destroys what Copy has not finished. ErrNotExist when there is
// nothing, ErrBusy while it is being received, ErrDependents when others have
// made snapshots of it.
func (c *Client) DropCopy(ctx context.Context, dataset string) error {
	return c.drop(ctx, PartialName(dataset))
}

// complete makes the partial dataset whole.
func (c *Client) complete(ctx context.Context, source Dataset, s Spec) error {
	part := PartialName(s.Name)
	send, err := c.rest(ctx, source, part, s)
	if err != nil {
		return err
	}
	if send != nil {
		if err := c.receive(ctx, send, source.Name, part, s); err != nil {
			return err
		}
	}
	return c.settle(ctx, source, part, s)
}

// rest returns the arguments of `zfs send` for what a partial dataset lacks;
// none when it has all data.
func (c *Client) rest(ctx context.Context, source Dataset, part string, s Spec) ([]string, error) {
	// Blocks as they are on disk: neither split into 128 KiB, nor unpacked for
	// the way between two datasets of one pool. Without -e, since an encrypted
	// dataset cannot receive embedded blocks.
	everything := []string{"-L", "-c", source.Name}
	d, err := c.Get(ctx, part)
	if errors.Is(err, ErrNotExist) {
		return everything, nil
	}
	if err != nil {
		return nil, err
	}
	goesOn, err := c.goesOn(ctx, d, source, s)
	if err != nil {
		return nil, err
	}
	if !goesOn {
		return everything, c.drop(ctx, part)
	}
	if token, half := d.Value(resumeToken); half {
		return []string{"-t", token}, nil
	}
	return nil, nil
}

const resumeToken = "receive_resume_token"

// goesOn reports whether a partial dataset is what a former call for the same
// left.
func (c *Client) goesOn(ctx context.Context, part, source Dataset, s Spec) (bool, error) {
	for name, p := range part.properties {
		if p.Source == "local" && name != "volsize" && name != "refreservation" && !s.has(name) {
			return false, nil
		}
	}
	guid := source.properties["guid"].Value
	if token, half := part.Value(resumeToken); half {
		// It says which snapshot before it says that this is gone.
		out, err := c.zfs(ctx, []string{"send", "-n", "-v", "-t", token}, source.Name)
		if out != "" && tokenGUID(out) != guid {
			return false, nil
		}
		return err == nil, err
	}
	return c.hasSnapshot(ctx, part.Name, source)
}

// tokenGUID reads which snapshot a token goes on with.
func tokenGUID(out string) string {
	for line := range strings.Lines(out) {
		if hex, ok := strings.CutPrefix(strings.TrimSpace(line), "toguid = 0x"); ok {
			if guid, err := strconv.ParseUint(hex, 16, 64); err == nil {
				return strconv.FormatUint(guid, 10)
			}
		}
	}
	return ""
}

// hasSnapshot reports whether a dataset has received all of the source.
func (c *Client) hasSnapshot(ctx context.Context, dataset string, source Dataset) (bool, error) {
	_, snapshot, _ := strings.Cut(source.Name, "@")
	received, err := c.Get(ctx, dataset+"@"+snapshot)
	if errors.Is(err, ErrNotExist) {
		return false, nil
	}
	return err == nil && received.properties["guid"] == source.properties["guid"], err
}

// receive pipes `zfs send` into `zfs receive`, which is not mounted and keeps
// what has come when it is cut off.
func (c *Client) receive(ctx context.Context, send []string, snapshot, part string, s Spec) error {
	args := []string{"receive", "-s", "-u"}
	for _, p := range s.Properties {
		args = append(args, "-o", p.Name+"="+p.Value)
	}
	_, err := c.run.Pipe(ctx, run.Cmd{Tool: "zfs", Args: append([]string{"send"}, send...)}, run.Cmd{Tool: "zfs", Args: append(args, part)})
	return classifyStream(err, snapshot, part)
}

// settle checks what was received and sets what the stream could not bring.
func (c *Client) settle(ctx context.Context, source Dataset, part string, s Spec) error {
	whole, err := c.hasSnapshot(ctx, part, source)
	if err != nil {
		return err
	}
	d, err := c.Get(ctx, part)
	if err != nil {
		return err
	}
	if _, half := d.Value(resumeToken); half || !whole {
		return fmt.Errorf("%s is not a whole copy of %s", part, source.Name)
	}
	if missing := s.missing(d); len(missing) > 0 {
		return c.SetAll(ctx, part, missing)
	}
	return nil
}

// missing returns what is to be set on a received dataset.
func (s Spec) missing(d Dataset) []Setting {
	var list []Setting
	for _, p := range s.Properties {
		if have, ok := d.Local(p.Name); !ok || have != p.Value {
			list = append(list, p)
		}
	}
	if s.VolumeBytes > 0 && d.Bytes("volsize") != s.VolumeBytes {
		list = append(list, Setting{Name: "volsize", Value: strconv.FormatInt(s.VolumeBytes, 10)})
	}
	if s.VolumeBytes > 0 && !s.Thin && !s.has("refreservation") && (len(list) > 0 || d.Bytes("refreservation") == 0) {
		list = append(list, Setting{Name: "refreservation", Value: "auto"})
	}
	return list
}

// drop destroys a partial dataset and the snapshot that came with it.
func (c *Client) drop(ctx context.Context, part string) error {
	out, err := c.zfs(ctx, []string{"list", "-H", "-o", "name", "-t", "snapshot", "-d", "1", part}, part)
	if err != nil {
		return err
	}
	if snapshots := slices.Collect(strings.Lines(out)); len(snapshots) == 1 {
		if err := c.Destroy(ctx, strings.TrimSuffix(snapshots[0], "\n")); err != nil {
			return err
		}
	}
	return c.destroyIdle(ctx, part)
}
