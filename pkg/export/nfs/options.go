package nfs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/export"
)

// options are what a client may do with an export, as far as we set it or it
// would open more than we grant. Its zero value is exportfs' default, but for
// sync, the subtree check and sec.
type options struct {
	write            bool
	noRootSquash     bool
	allSquash        bool
	anonUID, anonGID string
	async            bool
	subtreeCheck     bool
	// mountpoint is "yes", or the path of a mountpoint=PATH.
	mountpoint string
	sec        string
	// beyond are the options that we never set: they show other filesystems,
	// ports or servers.
	beyond string
}

// defaultAnon is what exportfs writes where nothing is said (exports(5)).
const defaultAnon = "65534"

func optionsFor(s export.Squash, readOnly bool) options {
	o := options{
		write: !readOnly, mountpoint: "yes", sec: "sys",
		anonUID: strconv.FormatUint(uint64(s.AnonUID), 10), anonGID: strconv.FormatUint(uint64(s.AnonGID), 10),
	}
	switch s.Mode {
	case "all":
		o.allSquash = true
	case "root":
	default:
		o.noRootSquash = true
	}
	return o
}

// String is the form of exports(5) for what optionsFor made. mountpoint makes a
// path that is not mounted answer ENOENT, so that the directory under it is
// never served.
func (o options) String() string {
	word := func(is bool, yes, no string) string {
		if is {
			return yes
		}
		return no
	}
	return fmt.Sprintf("%s,sync,no_subtree_check,mountpoint,sec=%s,%s,%s,anonuid=%s,anongid=%s",
		word(o.write, "rw", "ro"), o.sec,
		word(o.noRootSquash, "no_root_squash", "root_squash"), word(o.allSquash, "all_squash", "no_all_squash"),
		o.anonUID, o.anonGID)
}

// parseOptions reads the options of an export file or of mountd's table, where
// the defaults are spelled out and the last word counts. Words that it does not
// know are left out: a later exportfs has more of them.
func parseOptions(s string) options {
	o := options{anonUID: defaultAnon, anonGID: defaultAnon}
	for word := range strings.SplitSeq(s, ",") {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "rw", "ro":
			o.write = key == "rw"
		case "root_squash", "no_root_squash":
			o.noRootSquash = key == "no_root_squash"
		case "all_squash", "no_all_squash":
			o.allSquash = key == "all_squash"
		case "sync", "async":
			o.async = key == "async"
		case "subtree_check", "no_subtree_check":
			o.subtreeCheck = key == "subtree_check"
		case "anonuid":
			o.anonUID = parseAnon(value)
		case "anongid":
			o.anonGID = parseAnon(value)
		case "mountpoint", "mp":
			o.mountpoint = "yes"
			if value != "" {
				o.mountpoint = value
			}
		case "sec":
			o.sec = strings.TrimPrefix(o.sec+":"+value, ":")
		case "crossmnt", "nohide", "insecure", "fsid", "refer", "replicas", "pnfs", "no_acl":
			if !strings.Contains(","+o.beyond+",", ","+word+",") {
				o.beyond = strings.TrimPrefix(o.beyond+","+word, ",")
			}
		}
	}
	return o
}

// parseAnon reads an id, which mountd's table shows as a signed number.
func parseAnon(s string) string {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= -1<<31 && n < 1<<32 {
		return strconv.FormatUint(uint64(uint32(n)), 10)
	}
	return s
}
