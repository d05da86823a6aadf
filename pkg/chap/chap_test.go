package chap_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"pgregory.net/rapid"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/fault"
)

func TestRecordedDerivationsNeverChange(t *testing.T) {
	raw, err := os.ReadFile("testdata/derived")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) != 6 {
			continue
		}
		n++
		master, err := chap.ParseKey(f[0])
		if err != nil {
			t.Fatal(err)
		}
		key := chap.NodeKey(master, f[1])
		want := chap.Credentials{User: f[1], Password: f[4], MutualUser: "tarn", MutualPassword: f[5]}
		if got := chap.Derive(key, f[1], f[2]); key.Hex() != f[3] || got != want {
			t.Errorf("%s, %s: key %s, password %s, mutual %s", f[1], f[2], key.Hex(), got.Password, got.MutualPassword)
		}
	}
	if n < 3 {
		t.Errorf("%d vectors are recorded", n)
	}
}

func TestDerivedPairsDifferAndFitTheKernel(t *testing.T) {
	text := rapid.StringMatching(`[a-z0-9][a-z0-9.-]{0,20}`)
	key := rapid.SliceOfN(rapid.Byte(), chap.KeySize, chap.KeySize)
	rapid.Check(t, func(t *rapid.T) {
		master := chap.Key(key.Draw(t, "master"))
		seen := map[string]string{}
		for _, node := range rapid.SliceOfNDistinct(text, 2, 3, rapid.ID).Draw(t, "nodes") {
			for _, uuid := range rapid.SliceOfNDistinct(text, 2, 3, rapid.ID).Draw(t, "uuids") {
				c := chap.Derive(chap.NodeKey(master, node), node, uuid)
				for _, p := range []string{c.Password, c.MutualPassword} {
					if len(p) != 32 {
						t.Fatalf("a password has %d bytes", len(p))
					}
					if other, taken := seen[p]; taken && other != node+" "+uuid {
						t.Fatalf("%s and %s %s share a password", other, node, uuid)
					}
					seen[p] = node + " " + uuid
				}
				if c.Password == c.MutualPassword {
					t.Fatal("both directions have one password")
				}
			}
		}
	})
}

const (
	user, password             = "node.session.auth.username", "node.session.auth.password"
	mutualUser, mutualPassword = "node.session.auth.username_in", "node.session.auth.password_in"
)

func TestSecrets(t *testing.T) {
	long := strings.Repeat("p", 255)
	for name, c := range map[string]struct {
		secrets map[string]string
		want    chap.Credentials // zero: refused
	}{
		"a pair":      {map[string]string{user: "u", password: "p", "other": "x"}, chap.Credentials{User: "u", Password: "p"}},
		"both pairs":  {map[string]string{user: "u", password: long, mutualUser: "m", mutualPassword: "q"}, chap.Credentials{User: "u", Password: long, MutualUser: "m", MutualPassword: "q"}},
		"none":        {nil, chap.Credentials{}},
		"no password": {map[string]string{user: "u-sentinel"}, chap.Credentials{}},
		"no user":     {map[string]string{password: "sentinel"}, chap.Credentials{}},
		"only mutual": {map[string]string{mutualUser: "m", mutualPassword: "sentinel"}, chap.Credentials{}},
		"half mutual": {map[string]string{user: "u", password: "sentinel", mutualPassword: "sentinel"}, chap.Credentials{}},
		"other half":  {map[string]string{user: "u", password: "sentinel", mutualUser: "m-sentinel"}, chap.Credentials{}},
		"a newline":   {map[string]string{user: "u", password: "sentinel\n"}, chap.Credentials{}},
		"a blank":     {map[string]string{user: "u", password: "sentinel x"}, chap.Credentials{}},
		"a NUL":       {map[string]string{user: "u\x00sentinel", password: "p"}, chap.Credentials{}},
		"too long":    {map[string]string{user: "u", password: long + "p"}, chap.Credentials{}},
		"long mutual": {map[string]string{user: "u", password: "p", mutualUser: long + "p", mutualPassword: "q"}, chap.Credentials{}},
	} {
		got, err := chap.FromSecrets(c.secrets)
		if c.want == (chap.Credentials{}) {
			if fault.Kind(err) != fault.Invalid || strings.Contains(err.Error(), "sentinel") || strings.Contains(err.Error(), long) {
				t.Errorf("%s: %v", name, err)
			}
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got != c.want {
			t.Errorf("%s: got another pair", name)
		}
	}
}

func TestC58NoFormatShowsAPasswordOrKey(t *testing.T) {
	c := chap.Credentials{User: "readable", Password: "sentinel-1", MutualUser: "m", MutualPassword: "sentinel-2"}
	key := chap.Key("sentinel-key-with-some-more-bytes")
	values := map[string]any{
		"credentials": c, "pointer": &c, "in a struct": struct{ C chap.Credentials }{c}, "pointer in a struct": struct{ C *chap.Credentials }{&c},
		"list": []chap.Credentials{c}, "map": map[string]chap.Credentials{"x": c}, "key": key, "key in a struct": struct{ K chap.Key }{key},
	}
	var traces []string // of the sentinels, in whatever base
	for _, s := range []string{"sentinel-1", "sentinel-2", string(key)} {
		hex := fmt.Sprintf("%x", s)
		decimal := strings.Trim(fmt.Sprint([]byte(s)), "[]")
		base64, _ := json.Marshal([]byte(s))
		traces = append(traces, s, hex, strings.ToUpper(hex), decimal, strings.Trim(string(base64), `"=`))
	}
	for name, v := range values {
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%o", "%c", "%t"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		fmt.Fprintln(&out, fmt.Errorf("failed: %v", v))
		for _, format := range []logrus.Formatter{&logrus.TextFormatter{}, &logrus.JSONFormatter{}} {
			log := logrus.New()
			log.SetOutput(&out)
			log.SetFormatter(format)
			log.WithField("value", v).Errorf("failed with %v", v)
		}
		for _, trace := range traces {
			if strings.Contains(out.String(), trace) {
				t.Errorf("%s: %q is shown in %s", name, trace, out.String())
			}
		}
		if !strings.Contains(out.String(), "readable") && !strings.Contains(out.String(), "[key]") {
			t.Errorf("%s: nothing is shown in %s", name, out.String())
		}
	}
	if got, want := c.String(), `chap user "readable"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestModes(t *testing.T) {
	got := map[chap.Mode]bool{}
	for _, m := range []chap.Mode{chap.Derived, chap.Secrets, chap.None, "", "Derived", "off"} {
		got[m] = m.Valid()
	}
	want := map[chap.Mode]bool{"derived": true, "secrets": true, "none": true, "": false, "Derived": false, "off": false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
