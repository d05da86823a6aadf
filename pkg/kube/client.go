package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// requestTimeout bounds one request with its answer.
	requestTimeout = 10 * time.Second
	// maxAnswer is more than any object has in bytes: etcd takes 1.5 MiB.
	maxAnswer = 4 << 20
)

// MergePatch is the type of a patch that says the fields that change (RFC 7386).
const MergePatch = "application/merge-patch+json"

// Error is an answer that is no success.
type Error struct {
	// Code is HTTP's.
	Code int
	// Message is the server's own.
	Message string
	// Causes are the reasons of its details, such as NamespaceTerminating.
	Causes []string
}

func (e *Error) Error() string { return fmt.Sprintf("the API server says %d: %s", e.Code, e.Message) }

// Code returns the code of an answer that was no success, or 0.
func Code(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// Client asks one API server. It may be used by several goroutines.
type Client struct {
	account *Account
	agent   string

	mu        sync.Mutex
	authority string // the certificates with which transport was made
	transport *http.Transport
}

// NewClient returns a client, which connects when it is first asked. agent is the
// name by which the server's log knows it.
func NewClient(a *Account, agent string) *Client { return &Client{account: a, agent: agent} }

// Close closes the connections that are idle.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
}

// Get reads the object at a path.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	return c.do(ctx, http.MethodGet, path, "", nil, into)
}

// Create makes an object.
func (c *Client) Create(ctx context.Context, path string, object, into any) error {
	return c.do(ctx, http.MethodPost, path, "application/json", object, into)
}

// Patch changes fields of the object at a path.
func (c *Client) Patch(ctx context.Context, path string, fields, into any) error {
	return c.do(ctx, http.MethodPatch, path, MergePatch, fields, into)
}

// do sends one request, with the token that the account has now, and reads the
// answer into what into points to, unless it is nil. An answer that is no success
// is an *Error.
func (c *Client) do(ctx context.Context, method, path, kind string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	transport, err := c.connections()
	if err != nil {
		return err
	}
	token, err := c.account.read("token")
	if err != nil {
		return err
	}
	var content io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(raw)
	}
	request, err := http.NewRequestWithContext(ctx, method, "https://"+c.account.address+path, content)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", c.agent)
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	// Not a http.Client: it would follow a redirection, and nobody else gets the token.
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	raw, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if answer.StatusCode/100 != 2 {
		return refusal(answer.StatusCode, raw)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// refusal reads the object Status of an answer.
func refusal(code int, raw []byte) error {
	var status struct {
		Message string `json:"message"`
		Details struct {
			Causes []struct {
				Reason string `json:"reason"`
			} `json:"causes"`
		} `json:"details"`
	}
	e := &Error{Code: code, Message: http.StatusText(code)}
	if json.Unmarshal(raw, &status) == nil && status.Message != "" {
		e.Message = status.Message
		for _, c := range status.Details.Causes {
			e.Causes = append(e.Causes, c.Reason)
		}
	}
	return e
}

// connections returns the connections to a server whose certificate is of the
// account's authority, which may be replaced like a token.
func (c *Client) connections() (*http.Transport, error) {
	authority, err := c.account.read("ca.crt")
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport != nil && authority == c.authority {
		return c.transport, nil
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM([]byte(authority)) {
		return nil, errors.New("the service account's ca.crt holds no certificate")
	}
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
	c.authority = authority
	c.transport = &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     time.Minute,
	}
	return c.transport, nil
}
