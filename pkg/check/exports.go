package check

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/export/configfs"
	exportiscsi "github.com/tarn-csi/tarn/pkg/export/iscsi"
	exportnfs "github.com/tarn-csi/tarn/pkg/export/nfs"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// exports compares what the volumes of a pool ask for with what the kernel and
// mountd serve.
func (c *Checker) exports(ctx context.Context, client *zfs.Client, p config.Pool, parent zfs.Dataset, add func(...Finding)) {
	base, _ := parent.Value("mountpoint")
	seen, err := c.compare(ctx, client, p, base)
	if err == nil && len(seen.missing) > 0 {
		// A volume that is published or unpublished just now is not at fault: what is
		// missing must stay so, and be wanted still.
		wait(ctx, c.settle)
		var again sight
		if again, err = c.compare(ctx, client, p, base); err == nil {
			again.keep(seen)
			seen = again
		}
	}
	if err != nil {
		add(fail("exports of "+p.Name, "see `zfs get all "+p.Parent+"`", "the volumes cannot be compared with what is served: %v", err))
		return
	}
	if len(seen.broken) > 0 {
		add(fail("volumes of "+p.Name, "set the properties again or delete the volume", "%s", some(seen.broken)))
	}
	early := ""
	if c.cfg.Serves(volume.NFS) && seen.wanted[volume.NFS] > 0 {
		early = c.serverBeforePool(parent)
	}
	for _, protocol := range []string{volume.NFS, volume.ISCSI} {
		if c.cfg.Serves(protocol) {
			add(seen.judge(protocol, p.Name, early))
		}
	}
	if early != "" {
		add(warn("start order of "+p.Name, "start the server after the pool's mounts, and restart the pods that got ESTALE or EIO",
			"%s; nodes that came in between were refused", early))
	}
	if c.cfg.Serves(volume.NFS) {
		add(c.openings(p.Name, base, seen.sources))
	}
}

// sight is one comparison.
type sight struct {
	// wanted counts the published volumes by protocol.
	wanted map[string]int
	// missing says what is not served, by volume id.
	missing map[string]missing
	// sources are the directories that are published over NFS.
	sources []string
	broken  []string
}

type missing struct{ protocol, text string }

// keep drops what was not missing before, too.
func (s *sight) keep(before sight) {
	for id := range s.missing {
		if _, twice := before.missing[id]; !twice {
			delete(s.missing, id)
		}
	}
}

func (c *Checker) compare(ctx context.Context, client *zfs.Client, p config.Pool, base string) (sight, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	naming, err := c.cfg.Naming()
	if err != nil {
		return sight{}, err
	}
	datasets, err := client.Children(ctx, p.Parent)
	if err != nil {
		return sight{}, err
	}
	mounted, err := c.mountedAt()
	if err != nil {
		return sight{}, err
	}
	list, broken := volume.ReadWanted(volume.PoolConfig{Name: p.Name, Parent: p.Parent}, naming, base, datasets)
	s := sight{wanted: map[string]int{}, missing: map[string]missing{}}
	for _, err := range broken {
		s.broken = append(s.broken, err.Error())
	}
	lookers := c.lookers(naming)
	for _, w := range list {
		s.wanted[w.Protocol]++
		if w.Protocol == volume.NFS {
			s.sources = append(s.sources, w.Export.Source)
		}
		l := lookers[w.Protocol]
		if l == nil || !c.cfg.Serves(w.Protocol) {
			continue
		}
		text, err := notServed(ctx, l, w, mounted)
		if err != nil {
			return sight{}, err
		}
		if text != "" {
			s.missing[w.Export.ID] = missing{w.Protocol, w.Export.ID + " (" + text + ")"}
		}
	}
	return s, nil
}

// notServed says what a published volume lacks, or nothing.
func notServed(ctx context.Context, l looker, w volume.Wanted, mounted map[string]string) (string, error) {
	if w.Protocol == volume.NFS {
		if at, is := mounted[w.Dataset]; !is {
			return "not mounted at " + w.Export.Source, nil
		} else if at != w.Export.Source {
			return "mounted at " + at + ", not at " + w.Export.Source, nil
		}
	}
	status, there, err := l.Look(ctx, w.Export.UUID)
	if err != nil {
		return "", err
	}
	if !there {
		return "not exported", nil
	}
	for _, g := range w.Export.Grants {
		if !slices.ContainsFunc(names(w.Protocol, g), func(client string) bool { return slices.Contains(status.Clients, client) }) {
			return "not open to " + g.Node, nil
		}
	}
	if !status.Complete {
		return "not as it should be", nil
	}
	return "", nil
}

// names are what a server may know a node by.
func names(protocol string, g export.Grant) []string {
	if protocol == volume.ISCSI {
		return []string{g.Initiator}
	}
	var list []string
	for _, a := range g.Addresses {
		list = append(list, a.String())
	}
	return list
}

// judge makes a protocol's line.
func (s sight) judge(protocol, pool, early string) Finding {
	what := protocol + " exports of " + pool
	var texts []string
	for _, m := range s.missing {
		if m.protocol == protocol {
			texts = append(texts, m.text)
		}
	}
	if len(texts) == 0 {
		return ok(what, "%d published volumes, all of them served", s.wanted[protocol])
	}
	slices.Sort(texts)
	found := fmt.Sprintf("%d of %d published volumes are not served: %s", len(texts), s.wanted[protocol], some(texts))
	if protocol == volume.NFS && early != "" {
		found += "; " + early
	}
	return fail(what, "let tarn serve run, which serves them again within its reconcile interval, or says in its log why not", "%s", found)
}

// lookers read the kernel's tables as the daemon does.
func (c *Checker) lookers(naming ident.Naming) map[string]looker {
	if c.exported != nil {
		return c.exported
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	return map[string]looker{
		volume.NFS: exportnfs.New(c.run, exportnfs.Paths{
			ExportsDir: c.host.path("etc/exports.d"), Etab: c.host.path("var/lib/nfs/etab"), Proc: c.host.path("proc"),
		}, naming.Instance(), quiet),
		volume.ISCSI: exportiscsi.New(exportiscsi.Config{
			FS: configfs.NewHost(c.host.path(configfsPath)), Naming: naming, LockPath: configfs.DefaultLockPath, Log: quiet,
		}),
	}
}

// mountedAt returns where filesystems of ZFS are mounted, by dataset.
func (c *Checker) mountedAt() (map[string]string, error) {
	mounts, err := c.host.mounts()
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{}
	for _, m := range mounts {
		if _, bound := dirs[m.Source]; m.FSType == "zfs" && m.Root == "/" && !bound {
			dirs[m.Source] = m.Mountpoint
		}
	}
	return dirs, nil
}

// wait waits, until the end of ctx at most.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
