package iscsi

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func complain(code int, format string, args ...any) int {
	fmt.Fprintf(os.Stderr, "iscsiadm: "+format+"\n", args...)
	return code
}

// fakeIscsiadm answers as iscsiadm 2.1.8 does, with its exit codes, and
// refuses every form that it was not seen to take.
func fakeIscsiadm(w world, args []string) int {
	options := map[string]string{}
	for i := 0; i < len(args); i++ {
		switch a := args[i]; a {
		case "-m", "-T", "-p", "-I", "-o", "-n", "-v", "-r":
			if i++; i == len(args) || strings.HasPrefix(args[i], "-") {
				return complain(7, "option requires an argument %s", a)
			}
			options[a] = args[i]
		case "--login", "-u":
			options[a] = "yes"
		default:
			return complain(7, "unrecognized option %s", a)
		}
		if strings.Contains(args[i], "password") {
			return complain(7, "a password in the arguments")
		}
	}
	switch options["-m"] {
	case "iface":
		return w.iface(options)
	case "node":
		return w.node(options)
	case "session":
		return w.session(options)
	}
	return complain(7, "mode %s is not supported", options["-m"])
}

func (w world) iface(o map[string]string) int {
	path := "etc/ifaces/" + o["-I"]
	switch o["-o"] {
	case "new":
		w.set(path, "# BEGIN RECORD 2.1.8\niface.iscsi_ifacename = "+o["-I"]+"\niface.transport_name = tcp\n# END RECORD\n")
		return 0
	case "update":
		record := w.get(path)
		if record == "" {
			return complain(21, "Could not read iface %s", o["-I"])
		}
		if o["-n"] != "iface.initiatorname" {
			return complain(7, "unknown key %s", o["-n"])
		}
		w.set(path, strings.Replace(record, "# END", o["-n"]+" = "+o["-v"]+"\n# END", 1))
		return 0
	}
	return complain(7, "unknown operation")
}

// recordName is where a portal's record lies: HOST,PORT without brackets.
func recordName(iqn, portal string) string {
	host, port := portal, "3260"
	if i := strings.LastIndexByte(portal, ':'); i > 0 {
		host, port = portal[:i], portal[i+1:]
	}
	return "etc/nodes/" + iqn + "/" + strings.Trim(host, "[]") + "," + port
}

const freshRecord = `# BEGIN RECORD 2.1.8
node.name = %s
node.tpgt = -1
node.startup = automatic
node.leading_login = No
iface.iscsi_ifacename = %s
iface.initiatorname = %s
node.session.initial_login_retry_max = 8
node.session.nr_sessions = 1
node.session.auth.authmethod = CHAP
node.session.auth.username = somebody
node.session.auth.password = else
node.session.auth.chap_algs = MD5
node.session.timeo.replacement_timeout = 120
node.session.scan = auto
node.conn[0].address = %s
node.conn[0].startup = automatic
node.conn[0].timeo.login_timeout = 15
# END RECORD
`

func (w world) node(o map[string]string) int {
	switch {
	case o["-o"] == "new":
		iface := w.get("etc/ifaces/" + o["-I"])
		if iface == "" {
			return complain(3, "Could not read iface info for %s.", o["-I"])
		}
		name := recordName(o["-T"], o["-p"])
		if w.mode("record") != "elsewhere" {
			w.set(name, fmt.Sprintf(freshRecord, o["-T"], o["-I"], value(iface, "iface.initiatorname"), o["-p"]))
		}
		fmt.Printf("New iSCSI node [tcp:[hw=,ip=,net_if=,iscsi_if=%s] %s,-1 %s] added\n", o["-I"], o["-p"], o["-T"])
		return 0
	case o["-o"] == "delete":
		if _, err := os.Stat(w.path("etc/nodes/" + o["-T"])); err != nil {
			return complain(21, "No records found")
		}
		if len(w.sessionsLeft()) > 0 {
			return complain(15, "This command will remove the record, but a session is using it. Logout session then rerun command to remove record.")
		}
		if w.mode("delete") == "lie" {
			return 0
		}
		w.remove("etc/nodes/" + o["-T"])
		return 0
	case o["--login"] != "":
		return w.login(o)
	}
	return complain(7, "unknown operation")
}

func value(record, key string) string {
	for line := range strings.Lines(record) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " = "); ok && k == key {
			return v
		}
	}
	return ""
}

func (w world) login(o map[string]string) int {
	record := w.get(recordName(o["-T"], o["-p"]))
	if record == "" {
		return complain(21, "No records found")
	}
	if w.mode("login") != "" {
		// A tool that repeats what it read, as an error text may.
		n, _ := strconv.Atoi(w.mode("login"))
		return complain(n, "initiator reported error: %s %s", value(record, authPrefix+"password"), value(record, authPrefix+"password_in"))
	}
	if len(w.sessionsLeft()) > 0 {
		return complain(15, "session exists")
	}
	if w.mode("login race") != "" { // the connection ends before its reason is read
		w.set("login race.mode", w.mode("login race")[1:])
		return complain(5, "initiator reported error (5 - encountered iSCSI login failure)")
	}
	if w.mode("before login") == "hang" {
		time.Sleep(600 * time.Second)
	}
	w.add("records", record)
	s, ok := w.servers()[o["-p"]]
	if !ok {
		return complain(8, "initiator reported error (8 - connection timed out)")
	}
	if s.Exit != 0 {
		return complain(s.Exit, "initiator reported error (%d)", s.Exit)
	}
	auth := func(key string) string { return value(record, authPrefix+key) }
	switch {
	case value(record, "iface.initiatorname") != s.Initiator:
		return complain(24, "initiator reported error (24 - iSCSI login failed due to authorization failure)")
	case s.User != "" && (auth("authmethod") != "CHAP" || auth("username") != s.User || auth("password") != s.Password):
		return complain(24, "initiator reported error (24 - iSCSI login failed due to authorization failure)")
	case auth("username_in") != "" && (auth("username_in") != s.MutualUser || auth("password_in") != s.MutualPassword):
		return complain(19, "initiator reported error (19 - encountered non-retryable iSCSI login failure)")
	}
	w.open(o["-T"], value(record, "iface.initiatorname"), s)
	if w.mode("after login") == "hang" {
		time.Sleep(600 * time.Second)
	}
	return 0
}

func (w world) session(o map[string]string) int {
	dir := w.path("sys/class/iscsi_session/session" + o["-r"])
	if _, err := os.Stat(dir); err != nil {
		complain(0, "could not read session targetname: 5")
		return complain(22, "Could not get session info for sid %s", o["-r"])
	}
	if o["-u"] == "" {
		return complain(7, "unknown operation")
	}
	switch w.mode("logout") {
	case "lie":
		return 0
	case "refuse":
		return complain(9, "initiator reported error (9 - internal error)")
	case "no daemon":
		return complain(20, "initiator reported error (20 - could not connect to iscsid)")
	}
	w.close(filepath.Base(dir))
	return 0
}
