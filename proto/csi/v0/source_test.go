package csiv0

import (
	"fmt"
	"regexp"
	"strings"
)

// The statements of csi.proto, one a line. Whatever else appears there is an
// error, so that no option, label or keyword goes unnoticed.
var (
	reSyntax  = regexp.MustCompile(`^syntax = "(\w+)";$`)
	rePackage = regexp.MustCompile(`^package ([\w.]+);$`)
	reOption  = regexp.MustCompile(`^option go_package = "[^"]+";$`)
	reBlock   = regexp.MustCompile(`^(message|enum|service|oneof) (\w+) \{(\})?$`)
	reField   = regexp.MustCompile(`^(repeated )?(map<\w+, \w+>|[\w.]+) (\w+) = (\d+);$`)
	reValue   = regexp.MustCompile(`^(\w+) = (\d+);$`)
	reMethod  = regexp.MustCompile(`^rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\) \{\}$`)
)

type sourceBlock struct {
	kind, name string // the name is relative to the package; a oneof has its own
	lines      []func(resolve func(scope, name string) string) string
}

// sourceTable reads the text of csi.proto into the form of schema.golden. It
// shares nothing with protoc, so it tells when the generated code is stale.
func sourceTable(text string) ([]string, error) {
	var (
		blocks      []*sourceBlock
		open        []*sourceBlock
		syntax, pkg string
		known       = map[string]bool{}
	)
	owner := func() *sourceBlock { // the innermost open block that is no oneof
		for i := len(open) - 1; i >= 0; i-- {
			if open[i].kind != "oneof" {
				return open[i]
			}
		}
		return &sourceBlock{}
	}
	for number, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		m := []string(nil)
		is := func(re *regexp.Regexp) bool { m = re.FindStringSubmatch(line); return m != nil }
		inner := &sourceBlock{}
		if len(open) > 0 {
			inner = open[len(open)-1]
		}
		switch {
		case line == "" || strings.HasPrefix(line, "//") || is(reOption):
		case is(reSyntax):
			syntax = m[1]
		case is(rePackage):
			pkg = m[1]
		case line == "}" && len(open) > 0:
			open = open[:len(open)-1]
		case is(reBlock):
			block := &sourceBlock{kind: m[1], name: m[2]}
			if block.kind != "oneof" {
				block.name = strings.TrimPrefix(owner().name+"."+m[2], ".")
				known[block.name] = true
				blocks = append(blocks, block)
			}
			if m[3] == "" {
				open = append(open, block)
			}
		case inner.kind == "enum" && is(reValue):
			inner.add(func(func(scope, name string) string) string { return m[2] + " " + m[1] })
		case inner.kind == "service" && is(reMethod):
			inner.add(func(resolve func(scope, name string) string) string {
				return fmt.Sprintf("%s(%s%s) %s%s", m[1], m[2], resolve("", m[3]), m[4], resolve("", m[5]))
			})
		case (inner.kind == "message" || inner.kind == "oneof") && is(reField):
			scope, suffix := owner(), ""
			if inner.kind == "oneof" {
				suffix = " oneof " + inner.name
			}
			scope.add(func(resolve func(scope, name string) string) string {
				return fmt.Sprintf("%s %s %s%s%s", m[4], m[3], m[1], resolve(scope.name, m[2]), suffix)
			})
		default:
			return nil, fmt.Errorf("line %d is not understood: %s", number+1, line)
		}
	}

	if len(open) > 0 {
		return nil, fmt.Errorf("%s %s is not closed", open[0].kind, open[0].name)
	}

	// Inner scopes first, as protobuf looks names up.
	resolve := func(scope, name string) string {
		for ; scope != ""; scope = scope[:max(0, strings.LastIndex(scope, "."))] {
			if known[scope+"."+name] {
				return scope + "." + name
			}
		}
		return name
	}
	table := []string{fmt.Sprintf("package %s syntax %s", pkg, syntax)}
	for _, block := range blocks {
		table = append(table, block.kind+" "+block.name)
		for _, line := range block.lines {
			table = append(table, "  "+line(resolve))
		}
	}
	return table, nil
}

func (b *sourceBlock) add(line func(resolve func(scope, name string) string) string) {
	b.lines = append(b.lines, line)
}
