// Package octal reads the form in which the kernel, mountd and export files
// write a byte that would separate words: a backslash and three octal digits.
package octal

import (
	"strconv"
	"strings"
)

// Unescape returns the text that was written. What is no escape stays as it is.
func Unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
