// Package chap holds the credentials with which an iSCSI initiator and target
// know each other, and derives them on both sides from one key, so that no
// password is stored in ZFS or sent through the orchestrator.
package chap

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// Mode is how a pool's targets authenticate initiators.
type Mode string

// The modes.
const (
	// Derived computes the password from the node's key and the volume's uuid.
	Derived Mode = "derived"
	// Secrets takes the pair from the CSI secrets fields.
	Secrets Mode = "secrets"
	// None lets the initiator's name alone suffice.
	None Mode = "none"
)

// Valid reports whether m is a known mode.
func (m Mode) Valid() bool { return m == Derived || m == Secrets || m == None }

// Credentials is a CHAP pair, and the optional pair with which the target
// answers (mutual CHAP). It formats without the passwords.
type Credentials struct {
	User, Password             string
	MutualUser, MutualPassword string
}

// String hides the passwords, so that no log line can carry them.
func (c Credentials) String() string { return fmt.Sprintf("chap user %q", c.User) }

// Format is String for every verb: %#v and %d would reach the fields.
func (c Credentials) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// MarshalText is String too: a JSON log marshals its fields.
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// KeySize is the length of master and node keys in bytes.
const KeySize = sha256.Size

// Key is a master key or a node's key. It formats as a placeholder.
type Key []byte

// String hides the key.
func (Key) String() string { return "[key]" }

// Format hides the key from every verb.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// MarshalText hides the key from a JSON log.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Hex is the form in which keys are kept in files.
func (k Key) Hex() string { return hex.EncodeToString(k) }

// ParseKey reads the hexadecimal form.
func ParseKey(s string) (Key, error) {
	b, err := hex.DecodeString(strings.TrimSpace(s))
	if err != nil || len(b) != KeySize {
		return nil, fault.New(fault.Invalid, "a CHAP key is %d hexadecimal digits", 2*KeySize)
	}
	return b, nil
}

// ReadKey reads a key file.
func ReadKey(path string) (Key, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read CHAP key: %w", err)
	}
	k, err := ParseKey(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

func mac(key []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}

// NodeKey derives a node's key from the master key: a node that is taken over
// reveals its own volumes' passwords and no other node's.
func NodeKey(master Key, node string) Key { return mac(master, node) }

// Derive returns the credentials of one volume on the node that has the key.
// Both directions are authenticated: a node must not trust a target that does
// not know its key.
func Derive(nodeKey Key, node, uuid string) Credentials {
	return Credentials{
		User:           node,
		Password:       hex.EncodeToString(mac(nodeKey, uuid)[:16]),
		MutualUser:     "tarn",
		MutualPassword: hex.EncodeToString(mac(nodeKey, uuid+"/mutual")[:16]),
	}
}

// The secret keys, in the names that open-iscsi uses for the same settings.
const (
	secretUser           = "node.session.auth.username"
	secretPassword       = "node.session.auth.password"
	secretMutualUser     = "node.session.auth.username_in"
	secretMutualPassword = "node.session.auth.password_in"
)

// FromSecrets reads credentials out of a CSI secrets map. Half a pair is
// fault.Invalid, and so is a pair that is missing; texts never hold a value.
func FromSecrets(secrets map[string]string) (Credentials, error) {
	c := Credentials{
		User:           secrets[secretUser],
		Password:       secrets[secretPassword],
		MutualUser:     secrets[secretMutualUser],
		MutualPassword: secrets[secretMutualPassword],
	}
	if c.User == "" || c.Password == "" {
		return Credentials{}, fault.New(fault.Invalid,
			"CHAP mode is secrets: the secret must hold both %s and %s", secretUser, secretPassword)
	}
	if (c.MutualUser == "") != (c.MutualPassword == "") {
		return Credentials{}, fault.New(fault.Invalid,
			"the secret holds one of %s and %s: give both or none", secretMutualUser, secretMutualPassword)
	}
	for _, v := range []string{c.User, c.Password, c.MutualUser, c.MutualPassword} {
		if len(v) > maxLength || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return Credentials{}, fault.New(fault.Invalid,
				"CHAP user and password must have at most %d bytes and no blanks or control characters", maxLength)
		}
	}
	return c, nil
}

// maxLength keeps a value within the kernel's buffer: MAX_USER_LEN and
// MAX_PASS_LEN are 256 in drivers/target/iscsi/iscsi_target_auth.h and
// open-iscsi's AUTH_STR_MAX_LEN is 256, both with the terminating zero.
const maxLength = 255
