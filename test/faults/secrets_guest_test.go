//go:build guest

package faults

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/tarn-csi/tarn/test/machine"
)

// The keys of a secret, in open-iscsi's names.
const (
	keyUser, keyPassword             = "node.session.auth.username", "node.session.auth.password"
	keyMutualUser, keyMutualPassword = "node.session.auth.username_in", "node.session.auth.password_in"
)

// The pair of the secret logs in, and nothing else does.
func TestC22CredentialsAreEnforced(t *testing.T) {
	d := ownDaemon(t, "c22", "--chap", "secrets")
	for _, p := range []plugin{inV0(daemonConn{d}), inV1(daemonConn{d})} {
		v := newBlock(t, p, "c22-"+p.version)
		before := targetsLeft(t)
		v.secrets = map[string]string{keyUser: "u1"}
		_, err := p.ControllerPublishVolume(soon(t), v.publishRequest())
		wantCode(t, "half a pair", err, "both", codes.InvalidArgument)
		if after := targetsLeft(t); !slices.Equal(after, before) {
			t.Errorf("half a pair made %q", after)
		}
		right := map[string]string{keyUser: "u1", keyPassword: "sentinel-22-right"}
		v.secrets = right
		v.publish()
		if on, err := os.ReadFile(filepath.Join(targets, v.info["iqn"], "tpgt_1/attrib/authentication")); err != nil || strings.TrimSpace(string(on)) != "1" {
			t.Errorf("authentication is %q, %v", on, err)
		}
		v.stage()
		v.unstage()
		for what, pair := range map[string]map[string]string{"wrong": {keyUser: "u1", keyPassword: "sentinel-22-wrong"}, "none": nil} {
			v.secrets = pair
			err := v.tryStage()
			if err == nil {
				t.Errorf("%s: the login is let in", what)
				v.unstage()
			} else if strings.Contains(err.Error(), "sentinel") {
				t.Errorf("%s: the password is in %v", what, err)
			}
			if what == "wrong" {
				wantCode(t, what, err, "", codes.FailedPrecondition, codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument)
			}
			wantLoggedOut(t, v.info["iqn"])
		}
		wantRefusedWithoutPassword(t, v)
		v.secrets = right
		v.stage()
		v.unstage()
		v.unpublish()
		v.remove()
	}
	if strings.Contains(d.Log(), "sentinel-22") {
		t.Error("a password is in the log")
	}
}

// wantRefusedWithoutPassword logs in by hand, as the node but with no password.
func wantRefusedWithoutPassword(t *testing.T, v *vol) {
	t.Helper()
	node := []string{"-m", "node", "-T", v.info["iqn"], "-p", v.info["portals"], "-I", "byhand"}
	machine.Sh(t, "iscsiadm", "-m", "iface", "-I", "byhand", "-o", "new")
	machine.Sh(t, "iscsiadm", "-m", "iface", "-I", "byhand", "-o", "update", "-n", "iface.transport_name", "-v", "tcp",
		"-n", "iface.initiatorname", "-v", v.info["initiator"])
	machine.Sh(t, "iscsiadm", append(slices.Clone(node), "-o", "new")...)
	err := machine.Run("iscsiadm", append(slices.Clone(node), "--login")...)
	var status *exec.ExitError
	if !errors.As(err, &status) || status.ExitCode() != 24 {
		t.Errorf("a login without a password: %v, want status 24", err)
	}
	machine.Sh(t, "iscsiadm", append(slices.Clone(node), "-o", "delete")...)
	machine.Sh(t, "iscsiadm", "-m", "iface", "-I", "byhand", "-o", "delete")
}

// No password is in a log, an error or a record, however a login ends.
func TestC58NoPasswordIsLogged(t *testing.T) {
	d := ownDaemon(t, "c58", "--chap", "secrets")
	v := newBlock(t, inV1(daemonConn{d}), "c58")
	good := map[string]string{keyUser: "u1", keyPassword: "sentinel-good", keyMutualUser: "u2", keyMutualPassword: "sentinel-mutual"}
	v.secrets = good
	v.publish()
	var texts []string
	for k, how := range []string{"good", "wrong", "missing", "cut off"} {
		v.p = []plugin{inV0(daemonConn{d}), inV1(daemonConn{d})}[k%2]
		v.secrets = good
		limit, restore := time.Minute, func() {}
		switch how {
		case "wrong":
			v.secrets = map[string]string{keyUser: "u1", keyPassword: "sentinel-wrong", keyMutualUser: "u2", keyMutualPassword: "sentinel-mutual"}
		case "missing":
			step(t, os.WriteFile(filepath.Join(host.Tools, "iscsiadm"), []byte("#!/nonexistent\n"), 0o755))
			restore = func() { step(t, os.Remove(filepath.Join(host.Tools, "iscsiadm"))) }
		case "cut off":
			_, restore = replaceTool(t, "iscsiadm", "sleep 600")
			limit = 4 * time.Second
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := v.p.NodeStageVolume(ctx, v.stageRequest())
		cancel()
		restore()
		if (err == nil) != (how == "good") {
			t.Errorf("%s: %v", how, err)
		}
		records, globErr := filepath.Glob(filepath.Join(d.Dir, "state/node/*"))
		step(t, globErr)
		if how == "good" && len(records) == 0 {
			t.Error("there is no stage record")
		}
		for _, file := range records {
			b, err := os.ReadFile(file)
			if err == nil {
				texts = append(texts, string(b))
			}
		}
		if err != nil {
			texts = append(texts, err.Error())
		}
		eventually(t, "the call has ended", time.Minute, func() bool { return v.tryUnstage() == nil })
		wantLoggedOut(t, v.info["iqn"])
	}
	v.secrets = nil
	v.unpublish()
	v.remove()
	texts = append(texts, d.Log())
	for _, text := range texts {
		for _, password := range []string{"sentinel-good", "sentinel-mutual", "sentinel-wrong"} {
			if at := strings.Index(text, password); at >= 0 {
				t.Errorf("a password is in: %s", text[max(0, at-200):at+len(password)])
			}
		}
	}
	if !strings.Contains(d.Log(), "--login") || !strings.Contains(d.Log(), v.info["iqn"]) {
		t.Error("the log does not show the commands, so nothing was searched")
	}
}
