package fake

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/export/configfs"
)

// Tree lists what is below dir of any configfs, one line an item: its path, and
// for an attribute what it holds. It asks attribute for the names of those to
// read. Statistics are left out. A dir that does not exist is empty.
func Tree(f configfs.FS, dir string, attribute func(path string) bool) ([]string, error) {
	entries, err := f.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, e := range entries {
		p := path.Join(dir, e.Name)
		switch e.Kind {
		case configfs.Link:
			lines = append(lines, fmt.Sprintf("%s -> %s", p, e.Target))
		case configfs.Attribute:
			if !attribute(p) {
				continue
			}
			v, err := f.Read(p)
			if err != nil {
				return nil, err
			}
			lines = append(lines, fmt.Sprintf("%s = %q", p, v))
		case configfs.Directory:
			if strings.Contains(e.Name, "statistics") {
				continue
			}
			below, err := Tree(f, p, attribute)
			if err != nil {
				return nil, err
			}
			lines = append(append(lines, p+"/"), below...)
		}
	}
	slices.Sort(lines)
	return lines, nil
}
