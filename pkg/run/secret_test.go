package run_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/run"
)

const sentinel = "s3cr3t-Sentinel-0123456789"

func TestC58SecretsAreInNoLogErrorOrList(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cmd  run.Cmd
		fail bool
	}{
		"good":         {run.Cmd{Tool: "true", Args: []string{"--password", sentinel, "--user", "readable"}}, false},
		"wrong":        {run.Cmd{Tool: "sh", Args: []string{"testdata/complain.sh", "24", "login as readable with '" + sentinel + "' failed"}}, true},
		"tool missing": {run.Cmd{Tool: "tarn-no-such-tool", Args: []string{"-n", "password=" + sentinel, "readable"}}, true},
		"cut off":      {run.Cmd{Tool: "sh", Args: []string{"-c", `echo "readable: $0" >&2; exec sleep 600`, sentinel}}, true},
		"as a verb":    {run.Cmd{Tool: "true", Args: []string{sentinel, "readable"}}, false},
	} {
		for _, format := range []logrus.Formatter{&logrus.TextFormatter{}, &logrus.JSONFormatter{}} {
			t.Run(fmt.Sprintf("%s %T", name, format), func(t *testing.T) {
				t.Parallel()
				var logged bytes.Buffer
				log := logrus.New()
				log.SetOutput(&logged)
				log.SetLevel(logrus.TraceLevel)
				log.SetFormatter(format)
				r := run.New(log)
				var listed string
				log.AddHook(onEntry(func() { listed += fmt.Sprintf("%+v", r.Live()) }))

				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				cmd := c.cmd
				cmd.Secrets = []string{"", sentinel}
				_, err := r.Run(ctx, cmd)
				if (err != nil) != c.fail {
					t.Fatalf("got %v", err)
				}
				seen := logged.String() + listed + fmt.Sprintf("%v %+v %s %s", err, err, run.Stderr(err), deep(err))
				if strings.Contains(seen, sentinel) {
					t.Errorf("the secret is shown: %s", seen)
				}
				if !strings.Contains(logged.String(), "readable") || !strings.Contains(listed, "[masked]") {
					t.Errorf("what is no secret is hidden: %s", seen)
				}
			})
		}
	}
}

// deep is the text of every error that err wraps.
func deep(err error) string {
	var all []string
	for ; err != nil; err = errors.Unwrap(err) {
		all = append(all, err.Error())
	}
	return strings.Join(all, "\n")
}

type onEntry func()

func (onEntry) Levels() []logrus.Level     { return logrus.AllLevels }
func (f onEntry) Fire(*logrus.Entry) error { f(); return nil }

func TestASecretThatIsPartOfAnotherLeavesNoRest(t *testing.T) {
	t.Parallel()
	for _, secrets := range [][]string{{"abc", "abc-Rest"}, {"abc-Rest", "abc"}, {"Rest", "abc-Rest"}} {
		_, err := quiet().Run(t.Context(), run.Cmd{Tool: "false", Args: []string{"abc-Rest"}, Secrets: secrets})
		if text := err.Error(); strings.Contains(text, "abc") || strings.Contains(text, "Rest") {
			t.Errorf("%q shows %s", secrets, text)
		}
	}
}

func TestOnlyTheEndOfALongComplaintIsKept(t *testing.T) {
	t.Parallel()
	_, err := quiet().Run(t.Context(), run.Cmd{Tool: "sh", Args: []string{"testdata/complain.sh", "1", "the end", "2000"}})
	text := run.Stderr(err)
	if len(text) > 4096 || len(text) < 4000 || !strings.HasSuffix(text, "\nthe end") {
		t.Errorf("kept %d bytes, ending %q", len(text), text[max(0, len(text)-80):])
	}
}

func TestASecretAtTheCutOfALongComplaintLeavesNoRest(t *testing.T) {
	t.Parallel()
	for cut := range len(sentinel) + 2 {
		// All but the first cut bytes of the secret are within what is kept.
		filler := strings.Repeat(".", 4096-(len(sentinel)-cut)-len("\n"))
		_, err := quiet().Run(t.Context(), run.Cmd{
			Tool: "sh", Args: []string{"testdata/complain.sh", "1", strings.Repeat("x", 100) + sentinel + filler},
			Secrets: []string{sentinel, "other"},
		})
		if text := run.Stderr(err); strings.Trim(text, ".x") != "" && strings.Trim(text, ".x") != "[masked]" {
			t.Errorf("cut at %d: %q is left", cut, text[:40])
		}
	}
}
