package markdown

import (
	"fmt"
	"strings"
)

// Command is one command of a block: its words, without quotes, redirections and
// what is set in front of it.
type Command struct {
	// Line is where it begins, from 1.
	Line int
	Argv []string
	// Writes is the file that its output goes to, or "".
	Writes string
}

// Commands are those of a block of the languages console, sh or indented, in
// their order. Comments are left out, and lines that end with a backslash go on.
// A form that the documentation does not use, such as $(...), is an error.
func (b Block) Commands() ([]Command, error) {
	var all []Command
	var begun string
	first := 0
	for i, line := range strings.Split(b.Text, "\n") {
		if begun == "" {
			first = b.Line + i
		}
		if part, more := strings.CutSuffix(line, "\\"); more {
			begun += part + " "
			continue
		}
		list, err := split(begun + line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", first, err)
		}
		for _, words := range list {
			c := Command{Line: first}
			if c.Argv, c.Writes, err = redirect(words); err != nil {
				return nil, fmt.Errorf("line %d: %w", first, err)
			}
			all = append(all, c)
		}
		begun = ""
	}
	return all, nil
}

// Split reads the commands of one line.
func Split(line string) ([][]string, error) {
	b := Block{Text: line, Line: 1}
	list, err := b.Commands()
	var all [][]string
	for _, c := range list {
		all = append(all, c.Argv)
	}
	return all, err
}

// word is a word, or an operator when it was not quoted.
type word struct {
	text     string
	operator bool
}

// split splits a line at pipes, && and ;.
func split(line string) ([][]word, error) {
	words, err := lex(line)
	if err != nil {
		return nil, err
	}
	var all [][]word
	var current []word
	for _, w := range words {
		if w.operator && w.text != ">" && w.text != "<" {
			if len(current) == 0 {
				return nil, fmt.Errorf("nothing is before %q", w.text)
			}
			all, current = append(all, current), nil
			continue
		}
		current = append(current, w)
	}
	if len(current) > 0 {
		all = append(all, current)
	}
	return all, nil
}

// lex cuts a line into words as a shell does.
func lex(line string) ([]word, error) {
	var words []word
	var text strings.Builder
	inWord, quote := false, rune(0)
	end := func() {
		if inWord {
			words = append(words, word{text: text.String()})
		}
		text.Reset()
		inWord = false
	}
	for i, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			text.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == '#' && !inWord:
			end()
			return words, nil
		case r == ' ' || r == '\t':
			end()
		case r == '`', r == '$' && i+1 < len(line) && line[i+1] == '(':
			return nil, fmt.Errorf("a command within a command is not read: %s", line)
		case strings.ContainsRune("|&;<>", r):
			end()
			if n := len(words); r == '&' && n > 0 && words[n-1] == (word{"&", true}) {
				words[n-1].text = "&&"
				break
			}
			words = append(words, word{string(r), true})
		default:
			inWord = true
			text.WriteRune(r)
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quote is left open: %s", line)
	}
	end()
	return words, nil
}

// redirect takes redirections away.
func redirect(words []word) (argv []string, writes string, err error) {
	for i := 0; i < len(words); i++ {
		if !words[i].operator {
			argv = append(argv, words[i].text)
			continue
		}
		if i+1 == len(words) || words[i+1].operator {
			return nil, "", fmt.Errorf("nothing is after %q", words[i].text)
		}
		if words[i].text == ">" {
			writes = words[i+1].text
		}
		i++
	}
	if len(argv) == 0 {
		return nil, "", fmt.Errorf("there is no command")
	}
	return argv, writes, nil
}
