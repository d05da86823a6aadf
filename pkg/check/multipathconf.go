package check

import "strings"

// section is a keyword of multipath.conf(5), with its value or with what is in
// its braces.
type section struct {
	name, value string
	children    []section
}

// parseMultipath reads a file; its sections are the children of the result.
// Comments begin with "#" or "!" at the begin of a word.
func parseMultipath(text string) section {
	root := &section{}
	open := []*section{root}
	for line := range strings.Lines(text) {
		for words := multipathWords(line); len(words) > 0; {
			top := open[len(open)-1]
			switch {
			case words[0] == "}":
				if len(open) > 1 {
					done := open[len(open)-1]
					open = open[:len(open)-1]
					parent := open[len(open)-1]
					parent.children = append(parent.children, *done)
				}
				words = words[1:]
			case len(words) > 1 && words[1] == "{":
				open = append(open, &section{name: words[0]})
				words = words[2:]
			case len(words) > 1:
				top.children = append(top.children, section{name: words[0], value: strings.TrimPrefix(words[1], quoted)})
				words = words[2:]
			default:
				words = nil
			}
		}
	}
	return *root
}

func multipathWords(line string) []string {
	var list []string
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimSpace(rest) {
		switch {
		case rest[0] == '#' || rest[0] == '!':
			return list
		case rest[0] == '"':
			text, after, _ := strings.Cut(rest[1:], `"`)
			list, rest = append(list, quoted+text), after
		case rest[0] == '{' || rest[0] == '}':
			list, rest = append(list, rest[:1]), rest[1:]
		default:
			end := strings.IndexAny(rest, " \t{}\"")
			if end < 0 {
				end = len(rest)
			}
			list, rest = append(list, rest[:end]), rest[end:]
		}
	}
	return list
}
