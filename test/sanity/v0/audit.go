package sanityv0

import (
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Field size limits of the specification, in bytes.
const (
	maxString = 128
	maxMap    = 4 << 10
)

// rule is one that holds for every answer.
type rule string

const (
	ruleMessage rule = "message"
	ruleDetails rule = "details"
	ruleFields  rule = "fields"
	ruleStrings rule = "strings"
	ruleMaps    rule = "maps"
	ruleSecrets rule = "secrets"
)

// audit holds what was seen to break a rule, on any call of the run.
type audit struct {
	secrets []string

	mu     sync.Mutex
	broken map[rule][]string
	// errors counts the calls that were answered with an error, aborted those
	// among them with ABORTED.
	errors, aborted int
}

func newAudit(secrets Secrets) *audit {
	a := &audit{broken: map[rule][]string{}}
	for _, m := range secrets.all() {
		for _, v := range m {
			// A shorter value is found in ordinary text.
			if len(v) >= 6 {
				a.secrets = append(a.secrets, v)
			}
		}
	}
	return a
}

func (a *audit) observe(method string, answer proto.Message, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	method = method[strings.LastIndexByte(method, '/')+1:]
	if err == nil {
		// Empty stands for the answers of other versions (see servesV1).
		if _, foreign := answer.(*emptypb.Empty); !foreign {
			a.message(method, answer.ProtoReflect())
		}
		return
	}
	st := status.Convert(err)
	a.errors++
	if st.Code() == codes.Aborted {
		a.aborted++
	}
	if strings.TrimSpace(st.Message()) == "" {
		a.breaks(ruleMessage, "%s answers %s without a message", method, codeName(st.Code()))
	}
	if details := st.Proto().GetDetails(); len(details) > 0 {
		a.breaks(ruleDetails, "%s answers %s with details (%s)", method, codeName(st.Code()), details[0].GetTypeUrl())
	}
	a.text(method, "the status message", st.Message())
}

// message walks an answer.
func (a *audit) message(at string, m protoreflect.Message) {
	if len(m.GetUnknown()) > 0 {
		a.breaks(ruleFields, "%s has a field that csi.v0 does not know", at)
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		at := at + "." + string(fd.Name())
		switch {
		case fd.IsMap():
			size := 0
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				size += len(k.String()) + len(v.String())
				a.text(at, "key "+k.String(), v.String())
				return true
			})
			if size > maxMap {
				a.breaks(ruleMaps, "%s has %d bytes of keys and values", at, size)
			}
		case fd.IsList() && fd.Kind() == protoreflect.MessageKind:
			for i := range v.List().Len() {
				a.message(at, v.List().Get(i).Message())
			}
		case fd.Kind() == protoreflect.MessageKind:
			a.message(at, v.Message())
		case fd.Kind() == protoreflect.StringKind:
			if n := len(v.String()); n > maxString {
				a.breaks(ruleStrings, "%s has %d bytes: %.40q...", at, n, v.String())
			}
			a.text(at, "the value", v.String())
		}
		return true
	})
}

func (a *audit) text(at, what, s string) {
	for _, secret := range a.secrets {
		if strings.Contains(s, secret) {
			a.breaks(ruleSecrets, "%s: %s holds a secret", at, what)
		}
	}
}

func (a *audit) breaks(r rule, format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	for _, l := range a.broken[r] {
		if l == line {
			return
		}
	}
	a.broken[r] = append(a.broken[r], line)
}

// report notes what broke a rule.
func (a *audit) report(c *C, r rule) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, line := range a.broken[r] {
		c.Errorf("%s", line)
	}
}
