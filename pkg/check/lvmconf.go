package check

import "strings"

// lvmConfig is a configuration of LVM: values by SECTION/KEY. A single value is
// a list of one.
type lvmConfig map[string][]string

// parse lays a file over the configuration (lvm.conf(5)). What is no such file
// sets what can be understood of it, as a person would read it.
func (l lvmConfig) parse(text string) {
	var sections []string
	tokens := lvmTokens(text)
	for i := 0; i < len(tokens); i++ {
		switch {
		case tokens[i] == "}":
			if len(sections) > 0 {
				sections = sections[:len(sections)-1]
			}
		case i+1 < len(tokens) && tokens[i+1] == "{":
			sections = append(sections, tokens[i])
			i++
		case i+2 < len(tokens) && tokens[i+1] == "=":
			key := strings.Join(append(sections[:len(sections):len(sections)], tokens[i]), "/")
			var values []string
			if i += 2; tokens[i] == "[" {
				for i++; i < len(tokens) && tokens[i] != "]"; i++ {
					if tokens[i] != "," {
						values = append(values, strings.TrimPrefix(tokens[i], quoted))
					}
				}
			} else {
				values = []string{strings.TrimPrefix(tokens[i], quoted)}
			}
			l[key] = values
		}
	}
}

// quoted begins a token that stood in quotes, so that "}" is a value.
const quoted = "\x00"

// lvmTokens takes a file apart: words, strings, and signs of one character.
// Comments go from # to the end of the line.
func lvmTokens(text string) []string {
	var list []string
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '#':
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case strings.IndexByte(" \t\r\n", c) >= 0:
			i++
		case strings.IndexByte("{}[]=,", c) >= 0:
			list = append(list, string(c))
			i++
		case c == '"':
			var b strings.Builder
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' && i+1 < len(text) {
					i++
				}
				b.WriteByte(text[i])
			}
			i++
			list = append(list, quoted+b.String())
		default:
			begin := i
			for i < len(text) && strings.IndexByte(" \t\r\n{}[]=,\"#", text[i]) < 0 {
				i++
			}
			list = append(list, text[begin:i])
		}
	}
	return list
}
