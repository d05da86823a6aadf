// Package v0 serves csi.v0 (specification 0.2.0) from the servers of csi.v1:
// it translates requests and answers, and nothing else. It validates nothing,
// looks nothing up and keeps nothing; a server that it returns is as safe for
// concurrent use as the one beneath.
//
// Errors of the v1 servers pass untouched, whether they are of package fault
// or gRPC statuses: the interceptor that serves both versions gives them codes.
// What only v1 knows is left out of answers, and every field of a v0 request
// arrives. Maps and lists of strings are handed on, not copied.
package v0
