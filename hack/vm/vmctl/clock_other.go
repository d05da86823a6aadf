//go:build !amd64

package main

// clockArgument: on other hosts the guest's counter is not the host's, and the kernel has to measure it.
func clockArgument() string { return "" }
