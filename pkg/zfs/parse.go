package zfs

import "strings"

// The columns of `zfs get -Hp`. A value may hold tabs and newlines, and so look
// like further lines; names and sources cannot. What is read without values is
// therefore the truth about which properties there are and where they come from.
const (
	withValues    = "name,property,value,source"
	withoutValues = "name,property,source"
)

// parseGet reads a listing withValues. It is doubtful when a line is not what
// zfs(8) itself would print, and when a property was received: its value comes
// from another host, and may forge a line that says "local".
func parseGet(out string, known func(dataset string) bool) (list []Dataset, doubtful bool) {
	b := builder{index: map[string]int{}}
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		fields := strings.Split(line, "\t")
		if strings.HasSuffix(line, "\treceived") || len(fields) != 4 || !known(fields[0]) || !knownSource(fields[3]) {
			doubtful = true
			continue
		}
		if !b.add(fields[0], fields[1], Property{Value: fields[2], Source: source(fields[3])}) {
			doubtful = true
		}
	}
	return b.list, doubtful
}

// parseDoubtful reads the same listing by the truth that a second one,
// withoutValues, tells. A property that several lines claim to be, or that is
// spread over lines, keeps its name and has no value.
func parseDoubtful(out, truth string) []Dataset {
	type key struct{ dataset, property string }
	claims := map[key][][]string{}
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) >= 2 {
			k := key{fields[0], fields[1]}
			claims[k] = append(claims[k], fields)
		}
	}
	b := builder{index: map[string]int{}}
	for line := range strings.Lines(truth) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 3 {
			continue // zfs prints none
		}
		p := Property{Source: unreadable}
		if c := claims[key{fields[0], fields[1]}]; len(c) == 1 && len(c[0]) == 4 && c[0][3] == fields[2] {
			p = Property{Value: c[0][2], Source: source(fields[2])}
		}
		b.add(fields[0], fields[1], p)
	}
	return b.list
}

// builder gathers properties into datasets, in the order of their first lines.
type builder struct {
	list  []Dataset
	index map[string]int
}

// add returns false when the dataset has the property already.
func (b *builder) add(dataset, property string, p Property) bool {
	i, ok := b.index[dataset]
	if !ok {
		i = len(b.list)
		b.index[dataset] = i
		b.list = append(b.list, Dataset{Name: dataset, properties: map[string]Property{}})
	}
	if _, twice := b.list[i].properties[property]; twice {
		return false
	}
	b.list[i].properties[property] = p
	return true
}

const inheritedFrom = "inherited from "

func source(s string) string {
	if strings.HasPrefix(s, inheritedFrom) {
		return "inherited"
	}
	return s
}

func knownSource(s string) bool {
	switch s {
	case "local", "received", "default", "temporary", "none", "-":
		return true
	}
	return strings.HasPrefix(s, inheritedFrom)
}
