package zfs

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// An unfinished copy is called by the source's name only when it is whole.
func TestCopyRenamesNothingButAWholeCopy(t *testing.T) {
	const (
		read   = "zfs get -Hp -o name,property,value,source all "
		source = "tank/v@s\tguid\t255\t-\n"
		whole  = "tank/.copy.c\ttarn:x\t1\tlocal\ntank/.copy.c\treceive_resume_token\t-\t-\n"
		half   = "tank/.copy.c\ttarn:x\t1\tlocal\ntank/.copy.c\treceive_resume_token\t1-abc\t-\n"
		absent = "!cannot open 'tank/c': dataset does not exist"
	)
	for name, c := range map[string]struct {
		part, copied string // what is read of the partial dataset and of its snapshot
		send         string
		renamed      bool
	}{
		"whole":                           {whole, "tank/.copy.c@s\tguid\t255\t-\n", "", true},
		"half, and still so in the end":   {half, "!cannot open 'tank/.copy.c@s': dataset does not exist", "zfs send -t 1-abc", false},
		"half, with a snapshot all alike": {half, "tank/.copy.c@s\tguid\t255\t-\n", "zfs send -t 1-abc", false},
	} {
		t.Run(name, func(t *testing.T) {
			c2, s := scripted(t, map[string]string{
				read + "tank/v@s": source, read + "tank/c": absent, "zfs list -H -o name tank": "",
				"zfs send -n -v -t": "\ttoguid = 0xff\n", "zfs send -t": "", "zfs receive": "", "zfs rename": "",
				read + "tank/.copy.c": c.part,
			})
			s.exact = map[string]string{read + "tank/.copy.c@s": c.copied}
			err := c2.Copy(t.Context(), "tank/v@s", Spec{Name: "tank/c", Properties: []Setting{{"tarn:x", "1"}}})
			if (err == nil) != c.renamed || slices.ContainsFunc(s.lines, func(l string) bool { return strings.HasPrefix(l, "zfs rename") }) != c.renamed {
				t.Errorf("%v, after\n%s", err, strings.Join(s.lines, "\n"))
			}
			if c.send != "" && !slices.Contains(s.lines, c.send) || c.send == "" && slices.ContainsFunc(s.lines, func(l string) bool { return strings.HasPrefix(l, "zfs send") }) {
				t.Errorf("what is missing was not sent:\n%s", strings.Join(s.lines, "\n"))
			}
		})
	}
}

// `zfs receive` ends well when the kernel refuses a property.
func TestCopySetsWhatTheStreamDidNotBring(t *testing.T) {
	z := func(properties ...string) Dataset {
		d := Dataset{properties: map[string]Property{}}
		for _, p := range properties {
			name, value, _ := strings.Cut(p, "=")
			d.properties[name] = Property{Value: value, Source: "local"}
		}
		return d
	}
	for name, c := range map[string]struct {
		spec Spec
		have Dataset
		want []Setting
	}{
		"nothing":                      {Spec{Properties: []Setting{{"refquota", "10"}, {"tarn:x", ""}}}, z("refquota=10", "tarn:x="), nil},
		"refused":                      {Spec{Properties: []Setting{{"refquota", "10"}, {"tarn:x", "1"}}}, z("tarn:x=1"), []Setting{{"refquota", "10"}}},
		"other":                        {Spec{Properties: []Setting{{"tarn:x", "1"}}}, z("tarn:x=2"), []Setting{{"tarn:x", "1"}}},
		"thin":                         {Spec{VolumeBytes: 16, Thin: true}, z("volsize=16"), nil},
		"grown":                        {Spec{VolumeBytes: 32, Thin: true}, z("volsize=16"), []Setting{{"volsize", "32"}}},
		"thick":                        {Spec{VolumeBytes: 16}, z("volsize=16"), []Setting{{"refreservation", "auto"}}},
		"thick already":                {Spec{VolumeBytes: 16}, z("volsize=16", "refreservation=20"), nil},
		"thick and grown":              {Spec{VolumeBytes: 32}, z("volsize=16", "refreservation=20"), []Setting{{"volsize", "32"}, {"refreservation", "auto"}}},
		"a reservation of its own":     {Spec{VolumeBytes: 16, Properties: []Setting{{"refreservation", "5"}}}, z("volsize=16", "refreservation=5"), nil},
		"inherited is not what is set": {Spec{Properties: []Setting{{"compression", "lz4"}}}, NewDataset("", map[string]Property{"compression": {"lz4", "inherited"}}), []Setting{{"compression", "lz4"}}},
	} {
		if got := c.spec.missing(c.have); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestCopyKeepsAnExistingDataset(t *testing.T) {
	c, s := scripted(t, map[string]string{
		"zfs get -Hp -o name,property,value,source all tank/v@s": "tank/v@s\tguid\t255\t-\n",
		"zfs get -Hp -o name,property,value,source all tank/c":   "tank/c\ttype\tfilesystem\t-\n",
	})
	if err := c.Copy(t.Context(), "tank/v@s", Spec{Name: "tank/c"}); !errors.Is(err, ErrExists) || len(s.lines) != 2 {
		t.Errorf("%v, after %q", err, s.lines)
	}
}
