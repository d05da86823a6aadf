package iscsi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/fault"
)

// nodeRecord is a file of open-iscsi's database: what it logs in by.
type nodeRecord struct {
	iqn string
	// portal is HOST,PORT; "" in an unfinished record.
	portal string
	// iface is the interface that the record is bound to; "" where the file does
	// not tell.
	iface string
}

func (r nodeRecord) String() string {
	if r.portal == "" {
		return "unfinished record"
	}
	return "record " + r.portal
}

// Attachments lists the targets of which this node has a session, a record or
// an unfinished record, whoever made them. It asks no server.
func (a *Attacher) Attachments(context.Context) ([]attach.Attachment, error) {
	sessions, err := a.sessionsWith(func(string) bool { return true })
	if err != nil {
		return nil, err
	}
	records, err := a.records()
	if err != nil {
		return nil, err
	}
	servers := map[string]string{}
	for _, r := range records {
		host, _, _ := strings.Cut(r.portal, ",")
		if host != "" || servers[r.iqn] == "" {
			servers[r.iqn] = host
		}
	}
	type count struct{ sessions, lost int }
	counts := map[string]count{}
	for _, s := range sessions {
		c := counts[s.target]
		c.sessions++
		if s.state != loggedIn {
			c.lost++
		}
		counts[s.target] = c
		if address := a.address(s); address != "" || servers[s.target] == "" {
			servers[s.target] = address
		}
	}
	list := make([]attach.Attachment, 0, len(servers))
	for iqn, server := range servers {
		c := counts[iqn]
		list = append(list, attach.Attachment{IQN: iqn, Server: server, Sessions: c.sessions, Lost: c.lost})
	}
	slices.SortFunc(list, func(x, y attach.Attachment) int { return strings.Compare(x.IQN, y.IQN) })
	return list, nil
}

// address is the portal's that a session was made with.
func (a *Attacher) address(s session) string {
	address, err := attribute(filepath.Join(a.sys, "class/iscsi_connection", fmt.Sprintf("connection%d:0", s.id)), "persistent_address")
	if err != nil {
		return ""
	}
	return address
}

// DetachOrphan is Detach for a target that no volume is known to need. What
// another initiator made of it is left, and so is a disk that anything may use:
// it is looked for in every mount namespace and in every process. removed says
// what is gone, also beside an error.
//
// Errors: fault.Precondition for what is left, saying why.
func (a *Attacher) DetachOrphan(ctx context.Context, iqn, initiator string) (removed []string, err error) {
	if err := errors.Join(checkName("target", iqn), checkName("initiator", initiator)); err != nil {
		return nil, err
	}
	sessions, err := a.sessions(iqn)
	if err != nil {
		return nil, err
	}
	for _, s := range sessions {
		if s.initiator != initiator {
			return nil, fault.New(fault.Precondition, "session %d was made by initiator %q, which is not this node's %s", s.id, s.initiator, initiator)
		}
	}
	if err := a.idle(ctx, sessions); err != nil {
		return nil, err
	}
	for _, s := range sessions {
		if err := a.end(ctx, s); err != nil {
			return removed, err
		}
		removed = append(removed, "session "+strconv.Itoa(s.id))
	}
	records, err := a.recordsOf(iqn)
	if err != nil {
		return removed, err
	}
	for _, r := range records {
		if r.iface != interfaceName(initiator) {
			return removed, fault.New(fault.Precondition, "%s is of interface %q, which is not this node's %s",
				r, r.iface, interfaceName(initiator))
		}
	}
	if err := a.deleteRecords(ctx, iqn); err != nil {
		return removed, err
	}
	for _, r := range records {
		removed = append(removed, r.String())
	}
	return removed, nil
}

// records reads the whole database.
func (a *Attacher) records() ([]nodeRecord, error) {
	var all []nodeRecord
	iqns := map[string]bool{}
	for _, db := range a.databases {
		names, err := a.names(filepath.Join(db, "nodes"))
		if err != nil {
			return nil, err
		}
		entries, err := a.names(db)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if _, iqn, ok := cutTemporary(e); ok {
				names = append(names, iqn)
			}
		}
		for _, iqn := range names {
			iqns[iqn] = true
		}
	}
	for iqn := range iqns {
		if checkName("target", iqn) != nil {
			continue // no name of ours, so it needs no closer look
		}
		records, err := a.recordsOf(iqn)
		if err != nil {
			return nil, err
		}
		all = append(all, records...)
	}
	return all, nil
}

// cutTemporary undoes temporary.
func cutTemporary(name string) (iface, iqn string, ok bool) {
	rest, ok := strings.CutPrefix(name, "."+interfacePrefix)
	if !ok {
		return "", "", false
	}
	hash, iqn, ok := strings.Cut(rest, "-")
	return interfacePrefix + hash, iqn, ok
}

// recordsOf reads a target's records: nodes/IQN/HOST,PORT, or, for one that was
// discovered, nodes/IQN/HOST,PORT,GROUP/INTERFACE; and the unfinished ones.
func (a *Attacher) recordsOf(iqn string) ([]nodeRecord, error) {
	var all []nodeRecord
	for _, db := range a.databases {
		dir := filepath.Join(db, "nodes", iqn)
		portals, err := a.names(dir)
		if err != nil {
			return nil, err
		}
		for _, portal := range portals {
			content, err := os.ReadFile(filepath.Join(dir, portal))
			switch {
			case err == nil:
				all = append(all, nodeRecord{iqn: iqn, portal: portal, iface: interfaceOf(content)})
			case errors.Is(err, fs.ErrNotExist): // gone meanwhile
			default:
				// A directory, with a file an interface.
				interfaces, err := a.names(filepath.Join(dir, portal))
				if err != nil {
					return nil, err
				}
				for _, name := range interfaces {
					all = append(all, nodeRecord{iqn: iqn, portal: portal, iface: name})
				}
			}
		}
	}
	unfinished, err := a.temporaries(iqn)
	for _, path := range unfinished {
		iface, _, _ := cutTemporary(filepath.Base(path))
		all = append(all, nodeRecord{iqn: iqn, iface: iface})
	}
	return all, err
}

func interfaceOf(record []byte) string {
	for line := range strings.Lines(string(record)) {
		if name, ok := strings.CutPrefix(line, "iface.iscsi_ifacename = "); ok {
			return strings.TrimSpace(name)
		}
	}
	return ""
}
