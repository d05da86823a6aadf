package nfs

import "strings"

// Options returns the mount options for a volume: ours, then the user's, which
// win where they speak of the same thing.
//
// hard: an application must wait for a server that restarts and never see an
// error for data it was told is written (nfs(5), "soft" can corrupt). vers=4.2
// unless the user names a version: one port, sparse files, server-side copy.
// Left at the kernel's choice: timeo and retrans (they do not end a hard
// mount), resvport (the server demands a port below 1024 unless it exports
// "insecure"), rsize and wsize (negotiated), proto (follows from the address).
func Options(userFlags []string) []string {
	var options []string
	if !named(userFlags, "hard", "soft", "softerr") {
		options = append(options, "hard")
	}
	if !named(userFlags, "vers", "nfsvers", "minorversion", "v2", "v3", "v4", "v4.0", "v4.1", "v4.2") {
		options = append(options, "vers=4.2")
	}
	return append(options, userFlags...)
}

// named reports whether one of the options is among the flags, each of which
// may hold several, joined with commas.
func named(flags []string, names ...string) bool {
	for _, flag := range flags {
		for option := range strings.SplitSeq(flag, ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(option), "=")
			for _, n := range names {
				if name == n {
					return true
				}
			}
		}
	}
	return false
}
