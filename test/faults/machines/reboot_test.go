//go:build vm

package machines

import "fmt"

// A storage host is rebooted while a node writes: without any call the exports
// come back as they were, and the node's open files go on.
func (p *pair) reboot() {
	volumes := []*volume{p.create("r-nfs", "nfs"), p.create("r-iscsi", "iscsi")}
	for _, v := range volumes {
		p.up(v)
		p.work(v)
	}
	p.progress(volumes...)
	if held := p.node.sh("cat /sys/class/iscsi_session/session*/recovery_tmo"); held != fmt.Sprint(outage.Seconds()) {
		p.t.Errorf("the node's disk waits for %s s, want %s", held, outage)
	}
	before := p.exportsOf(volumes...)

	p.storage.stop() // with everything published
	p.bootStorage()
	if after := p.exportsOf(volumes...); after != before {
		p.t.Errorf("the exports are not what they were\nbefore:\n%s\nafter:\n%s", before, after)
	}
	p.progress(volumes...)
	p.endWork(volumes...)
	for _, v := range volumes {
		p.down(v)
		p.remove(v)
	}
	p.leftNothing()
}
