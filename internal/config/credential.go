package config

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

func (r *reader) key(n *yaml.Node, what string, into *Secret) {
	s, ok := r.text(n, what)
	if ok && !printable(s) {
		r.problem(n, "%s must be printable and without spaces.", what)
		return
	}
	*into = Secret(s)
}

// keyFile reads the key at once: a start that lacks it should say so with its line.
func (r *reader) keyFile(n *yaml.Node, what string, into *Secret) {
	var path string
	if r.path(what, &path)(n); path == "" {
		return
	}
	text, err := readSome(path, mostKeyBytes)
	if err != nil {
		r.problem(n, "%s cannot be read: %s.", what, err)
		return
	}
	s := strings.TrimRight(string(text), "\r\n")
	if s == "" || len(s) > mostKeyBytes || !printable(s) {
		r.problem(n, "%s must hold one line: the key, printable and without spaces.", what)
		return
	}
	*into = Secret(s)
}

// readSome reads little more of a file than most.
func readSome(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most+2))
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' })
}

// authorities reads the certificates of a PEM file at once, and every one of them: a file
// that is half right would be found out call by call.
func (r *reader) authorities(n *yaml.Node, what string, into **x509.CertPool) {
	var path string
	before := len(r.problems)
	if r.path(what, &path)(n); path == "" {
		if len(r.problems) == before {
			r.problem(n, "%s has no value.", what) // an empty variable must not mean: trust all others
		}
		return
	}
	text, err := readSome(path, mostCABytes)
	if err != nil {
		r.problem(n, "%s cannot be read: %s.", what, err)
		return
	}
	pool, err := certificates(text)
	if err != nil {
		r.problem(n, "%s must hold certificates in PEM: %s %s.", what, path, err)
		return
	}
	*into = pool
}

// certificates makes a pool of what is in PEM. What else a file says is a comment. An error
// goes on where the name of the file ends.
func certificates(text []byte) (*x509.CertPool, error) {
	if len(text) > mostCABytes {
		return nil, fmt.Errorf("is larger than %d MiB", mostCABytes>>20)
	}
	pool, blocks := x509.NewCertPool(), bytes.Count(text, []byte("-----BEGIN "))
	for n := 1; ; n++ {
		block, rest := pem.Decode(text)
		switch {
		case block == nil && n <= blocks:
			return nil, errors.New("has a block that is damaged")
		case block == nil && n == 1:
			return nil, errors.New("has none")
		case block == nil:
			return pool, nil
		case block.Type != "CERTIFICATE":
			return nil, fmt.Errorf("has a %s", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("has one, number %d, that cannot be read: %w", n, err)
		}
		pool.AddCert(c)
		text = rest
	}
}

// proxy never repeats what is wrong: it may hold a password.
func (r *reader) proxy(n *yaml.Node, what string, into *Secret) {
	s, ok := r.text(n, what)
	if !ok {
		return
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" || !dialable(u) || strings.TrimSuffix(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || !printable(u.Host) {
		r.problem(n, "%s must be http, a host and a port, such as http://proxy.example:3128.", what)
		return
	}
	*into = Secret(s)
}
