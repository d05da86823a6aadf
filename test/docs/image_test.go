package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The image is made with the Go that go.mod asks for, of folders that exist, and
// lacks none that the command imports.
func TestTheImageIsMadeOfWhatThereIs(t *testing.T) {
	file := read(t, "Dockerfile")
	_, want, _ := strings.Cut(read(t, "go.mod"), "\ngo ")
	want, _, _ = strings.Cut(want, "\n")
	if !strings.Contains(file, "golang:"+want+"\n") {
		t.Errorf("the image is not made with Go %s", want)
	}
	copied := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^COPY ([a-z][\w. ]*) \S+$`).FindAllStringSubmatch(file, -1) {
		for _, name := range strings.Fields(m[1]) {
			copied[name] = true
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Error(err)
			}
			if !strings.Contains(read(t, ".dockerignore"), "\n!"+name+"\n") {
				t.Errorf(".dockerignore hides %s", name)
			}
		}
	}
	err := filepath.WalkDir(filepath.Join(root, "cmd"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		raw, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`"github.com/tarn-csi/tarn/(\w+)/`).FindAllStringSubmatch(string(raw), -1) {
			if !copied[m[1]] {
				t.Errorf("%s imports %s, which is not in the image's sources", path, m[1])
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
