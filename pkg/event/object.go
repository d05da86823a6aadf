package event

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// Reference names the object that an event is about, as Kubernetes writes it.
type Reference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
}

// Event is one of Kubernetes' core/v1, as far as it is written here.
type Event struct {
	APIVersion         string    `json:"apiVersion"`
	Kind               string    `json:"kind"`
	Metadata           metadata  `json:"metadata"`
	InvolvedObject     Reference `json:"involvedObject"`
	Reason             string    `json:"reason"`
	Message            string    `json:"message"`
	Source             source    `json:"source"`
	FirstTimestamp     time.Time `json:"firstTimestamp"`
	LastTimestamp      time.Time `json:"lastTimestamp"`
	Count              int32     `json:"count"`
	Type               string    `json:"type"`
	ReportingComponent string    `json:"reportingComponent"`
}

type metadata struct {
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	UID       string `json:"uid,omitempty"`
}

type source struct {
	Component string `json:"component"`
}

const (
	// maxMessage is the longest message of an event, in bytes, by Kubernetes'
	// validation of events.k8s.io.
	maxMessage = 1024
	// maxName leaves room for the hash below 253, the longest name.
	maxName = 230
	// defaultNamespace is where events about objects without a namespace are.
	defaultNamespace = "default"
)

// objectName is the pattern of a name, or a namespace, that may stand in a path.
var objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// Make makes an event. The same about the same object has the same name, in
// each life of the driver, so that it is counted and not repeated.
func Make(driver string, about Reference, key, reason, message string, now time.Time) Event {
	hash := sha256.Sum256([]byte(strings.Join([]string{driver, key, reason, about.UID}, "\x00")))
	name := strings.TrimRight(about.Name[:min(len(about.Name), maxName)], ".-") + "." + hex.EncodeToString(hash[:8])
	namespace := about.Namespace
	if namespace == "" {
		namespace = defaultNamespace
	}
	kind := "Warning"
	if reason == Recovered {
		kind = "Normal"
	}
	now = now.UTC().Truncate(time.Second)
	return Event{
		APIVersion: "v1", Kind: "Event", Metadata: metadata{Name: name, Namespace: namespace},
		InvolvedObject: about, Reason: reason, Message: plain(message), Source: source{driver}, ReportingComponent: driver,
		FirstTimestamp: now, LastTimestamp: now, Count: 1, Type: kind,
	}
}

// plain is a message in one line, cut at the end of a character.
func plain(message string) string {
	message = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, message)
	return strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
}
