package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
)

// Where the API server is, on this machine and for the guest, whose network puts
// this machine at the address of the Service "kubernetes". So pods find it as in
// any cluster, without a kube-proxy.
const (
	services     = "10.99.0.0/24"
	server       = "https://127.0.0.1:443"
	guestsServer = "https://10.99.0.1:443"
)

// nodeName is the name of the only node.
const nodeName = "storage-1"

// users are known by a token for the time of a run, with their names and groups.
var users = map[string]string{
	"admin":              `admin,1,"system:masters"`,
	"controller-manager": "system:kube-controller-manager,2",
	"scheduler":          "system:kube-scheduler,3",
	"kubelet":            "system:node:" + nodeName + `,4,"system:nodes"`,
}

// writeTokens writes what the API server reads at its start: who has which token,
// and the key that signs those of ServiceAccounts.
func (c *cluster) writeTokens() error {
	var list strings.Builder
	c.tokens = map[string]string{}
	for user, rest := range users {
		c.tokens[user] = rand.Text()
		fmt.Fprintf(&list, "%s,%s\n", c.tokens[user], rest)
	}
	if err := os.WriteFile(c.path("tokens.csv"), []byte(list.String()), 0o600); err != nil {
		return err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return os.WriteFile(c.path("accounts.key"), block, 0o600)
}

// writeKubeconfig writes what a user needs to reach the API server, whose
// certificate must be there.
func (c *cluster) writeKubeconfig(user, server, token string) error {
	authority, err := os.ReadFile(c.path("apiserver/apiserver.crt"))
	if err != nil {
		return err
	}
	type object = map[string]any
	text, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "it",
		"clusters": []object{{"name": "it", "cluster": object{"server": server, "certificate-authority-data": authority}}},
		"users":    []object{{"name": "it", "user": object{"token": token}}},
		"contexts": []object{{"name": "it", "context": object{"cluster": "it", "user": "it"}}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(c.kubeconfig(user), text, 0o600)
}
