package run

import (
	"slices"
	"strings"
)

// mask replaces every secret of c in s, the longer ones first: one secret may
// be a part of another.
func (c Cmd) mask(s string) string {
	secrets := slices.Clone(c.Secrets)
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, secret := range secrets {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, "[masked]")
		}
	}
	return s
}

// afterCut drops from s, which lost its begin, the rest of a secret that was
// cut in two and that mask would not know.
func (c Cmd) afterCut(s string) string {
	rest := 0
	for _, secret := range c.Secrets {
		for i := 1; i < len(secret); i++ {
			if strings.HasPrefix(s, secret[i:]) {
				rest = max(rest, len(secret)-i)
				break
			}
		}
	}
	return s[rest:]
}

// tail keeps the last limit bytes written to it.
type tail struct {
	limit int
	buf   []byte
	cut   bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - t.limit; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
		t.cut = true
	}
	return len(p), nil
}

// complaint is what a child wrote to stderr, fit for an error.
func (c Cmd) complaint(t *tail) string {
	s := string(t.buf)
	if t.cut {
		s = c.afterCut(s)
	}
	return c.mask(strings.TrimSpace(s))
}
