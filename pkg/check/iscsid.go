package check

// iscsidSocket is the abstract socket on which iscsid, or systemd for it,
// listens (open-iscsi, usr/mgmt_ipc.h).
const iscsidSocket = "@ISCSIADM_ABSTRACT_NAMESPACE"

func (c *Checker) iscsid() Finding {
	if !c.host.listens(iscsidSocket) {
		return fail("iscsid", "systemctl enable --now iscsid.socket, or start iscsid", "does not listen, so no node can log in")
	}
	if len(c.host.processes("iscsid")) == 0 {
		return ok("iscsid", "is started by its socket when it is needed")
	}
	return ok("iscsid", "runs")
}
