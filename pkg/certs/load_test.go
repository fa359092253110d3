package certs

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

func TestLoadReads(t *testing.T) {
	ca := testCA()
	rsaCert := ca.issue("rsa.example", rsaKey(), nil).Certificate[0]
	ecCert := ca.issue("ec.example", ecdsaKey(), nil).Certificate[0]
	edCert := ca.issue("ed.example", ed25519Key(), nil).Certificate[0]
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey().(*rsa.PrivateKey))})
	sec1 := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: must(x509.MarshalECPrivateKey(ecdsaKey().(*ecdsa.PrivateKey)))})
	params := pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07}})
	expired := ca.issue("old.example", ecdsaKey(), func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = c.NotBefore.AddDate(-2, 0, 0), c.NotBefore.AddDate(-1, 0, 0)
	}).Certificate[0]

	for _, tt := range []struct {
		name      string
		cert, key []byte
		chain     int
	}{
		{"RSA key in PKCS#8", certPEM(rsaCert), keyPEM(rsaKey()), 1},
		{"RSA key in PKCS#1", certPEM(rsaCert), pkcs1, 1},
		{"ECDSA key in PKCS#8", certPEM(ecCert), keyPEM(ecdsaKey()), 1},
		{"ECDSA key as openssl ecparam writes it", certPEM(ecCert), slices.Concat(params, sec1), 1},
		{"Ed25519 key", certPEM(edCert), keyPEM(ed25519Key()), 1},
		{"chain with the issuer behind", certPEM(ecCert, ca.cert.Raw), keyPEM(ecdsaKey()), 2},
		{"text around the blocks", slices.Concat([]byte("subject: ec\n----- a comment\n"), certPEM(ecCert), []byte("the end\n")), keyPEM(ecdsaKey()), 1},
		{"CRLF lines", bytes.ReplaceAll(certPEM(ecCert), []byte("\n"), []byte("\r\n")), keyPEM(ecdsaKey()), 1},
		{"byte order mark", slices.Concat([]byte("\xef\xbb\xbf"), certPEM(ecCert)), keyPEM(ecdsaKey()), 1},
		{"both in both files", slices.Concat(keyPEM(ecdsaKey()), certPEM(ecCert)), slices.Concat(certPEM(ecCert), keyPEM(ecdsaKey())), 1},
		{"expired, which Check warns of", certPEM(expired), keyPEM(ecdsaKey()), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Load([]Pair{{write(t, "cert.pem", tt.cert), write(t, "key.pem", tt.key)}})
			if err != nil {
				t.Fatal(err)
			}
			if c := got[0]; len(c.Certificate) != tt.chain || c.Leaf == nil || !bytes.Equal(c.Leaf.Raw, c.Certificate[0]) {
				t.Fatalf("chain of %d with leaf %v, want %d and the first as leaf", len(c.Certificate), c.Leaf, tt.chain)
			}
		})
	}
}

func TestLoadNamesWhatIsWrong(t *testing.T) {
	ca := testCA()
	leaf := ca.issue("dev.example", ecdsaKey(), nil).Certificate[0]
	cert, key := certPEM(leaf), keyPEM(ecdsaKey())
	p224 := ca.issue("p224.example", p224Key(), nil).Certificate[0]
	x25519 := must(ecdh.X25519().GenerateKey(rand.Reader))
	utf16le := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(string(cert))) {
		utf16le = append(utf16le, byte(u), byte(u>>8))
	}
	block := func(typ string, data []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: data})
	}

	for _, tt := range []struct {
		name      string
		cert, key []byte
		file      string   // the file that must be named
		want      []string // reason and the way to mend it
	}{
		{"empty certificate file", nil, key, "cert.pem", []string{"is empty"}},
		{"certificate is plain text", []byte("hello\n"), key, "cert.pem", []string{"no PEM block", "-----BEGIN "}},
		{"certificate is DER", leaf, key, "cert.pem", []string{"DER certificate", "openssl x509 -inform der"}},
		{"certificate is UTF-16", utf16le, key, "cert.pem", []string{"UTF-16", "UTF-8"}},
		{"certificate is PKCS#12 or the like", []byte{0x30, 0x82, 1, 2, 3}, key, "cert.pem", []string{"PKCS#12", "openssl pkcs12"}},
		{"certificate is PKCS#7", block("PKCS7", leaf), key, "cert.pem", []string{"PKCS7", "openssl pkcs7 -print_certs"}},
		{"certificate with trust settings", block("TRUSTED CERTIFICATE", leaf), key, "cert.pem", []string{"openssl x509 -in"}},
		{"certificate is a request", block("CERTIFICATE REQUEST", leaf), key, "cert.pem", []string{"CERTIFICATE REQUEST", "BEGIN CERTIFICATE-----"}},
		{"certificate cut in its block", cert[:len(cert)/2], key, "cert.pem", []string{"line 1:", "cut short"}},
		{"second certificate of the chain cut", slices.Concat(cert, cert[:len(cert)/2]), key, "cert.pem", []string{"line 12:", "cut short"}},
		{"second certificate cut in its first line", slices.Concat(cert, cert[:8]), key, "cert.pem", []string{"line 12:", "cut short"}},
		{"certificate with a damaged line", bytes.Replace(cert, []byte("\nM"), []byte("\n*"), 1), key, "cert.pem", []string{"line 1:", "damaged"}},
		{"certificate without its first line", cert[bytes.IndexByte(cert, '\n')+1:], key, "cert.pem", []string{"damaged"}},
		{"content of the certificate is none", slices.Concat([]byte("# mine\n"), block("CERTIFICATE", []byte{1, 2, 3})), key, "cert.pem", []string{"line 2:", "x509:"}},
		{"files swapped", key, cert, "cert.pem", []string{"PRIVATE KEY", "swapped"}},
		{"key file holds a certificate", cert, cert, "key.pem", []string{"no private key", "swapped"}},
		{"key file holds something else", cert, block("PUBLIC KEY", leaf), "key.pem", []string{`"PUBLIC KEY"`, "BEGIN PRIVATE KEY"}},
		{"key of another type", cert, keyPEM(rsaKey()), "key.pem", []string{"RSA", "does not belong", "ECDSA P-256", "dev.example", "issued together"}},
		{"key of the same type", certPEM(ca.issue("r", rsaKey(), nil).Certificate[0]), keyPEM(rsaOther()), "key.pem", []string{"does not belong"}},
		{"issuer before the leaf", slices.Concat(certPEM(ca.cert.Raw), cert), key, "cert.pem", []string{"certificate 2 of the chain", "put that one first"}},
		{"encrypted key, PKCS#8", cert, block("ENCRYPTED PRIVATE KEY", leaf), "key.pem", []string{"encrypted", "openssl pkey"}},
		{"encrypted key, the older form", cert, pem.EncodeToMemory(&pem.Block{
			Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}, Bytes: leaf,
		}), "key.pem", []string{"encrypted", "openssl pkey"}},
		{"key is DER", cert, must(x509.MarshalPKCS8PrivateKey(ecdsaKey())), "key.pem", []string{"DER private key", "openssl pkey -inform der"}},
		{"key is of OpenSSH", cert, block("OPENSSH PRIVATE KEY", leaf), "key.pem", []string{"ssh-keygen"}},
		{"key type nobody serves", cert, block("DSA PRIVATE KEY", leaf), "key.pem", []string{"DSA PRIVATE KEY", "not supported"}},
		{"content of the key is none", cert, block("PRIVATE KEY", []byte{1}), "key.pem", []string{"line 1:", "can't be read"}},
		{"key that can't sign", cert, block("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(x25519))), "key.pem", []string{"can't sign"}},
		{"curve that TLS has not", certPEM(p224), keyPEM(p224Key()), "cert.pem", []string{"ECDSA P-224", "ECDSA P-256"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			certs, err := Load([]Pair{{write(t, "cert.pem", tt.cert), write(t, "key.pem", tt.key)}})
			if err == nil {
				t.Fatal("accepted")
			}
			if certs != nil {
				t.Error("certificates along with an error")
			}
			for _, want := range append(tt.want, tt.file) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q\ndoes not name %q", err, want)
				}
			}
		})
	}
}

func TestLoadGivesTheProblemsOfAllFiles(t *testing.T) {
	dir := t.TempDir()
	missing := func(name string) string { return filepath.Join(dir, name) }
	_, err := Load([]Pair{{missing("a.pem"), missing("a.key")}, {missing("b.pem"), dir}})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v is not fs.ErrNotExist", err)
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d problems, want 4:\n%v", len(lines), err)
	}
	for i, want := range []string{"a.pem", "a.key", "b.pem", dir} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("problem %d is %q, want it to name %q", i, lines[i], want)
		}
	}
	if !strings.Contains(lines[3], "is a directory") {
		t.Errorf("a directory as key: %q", lines[3])
	}
}

func TestLoadSaysWhenTheFileMayNotBeRead(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read every file")
	}
	file := write(t, "cert.pem", nil)
	if err := os.Chmod(file, 0); err != nil {
		t.Fatal(err)
	}
	_, err := Load([]Pair{{file, file}})
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "let the user") {
		t.Errorf("got %v", err)
	}
}

func TestLoadPool(t *testing.T) {
	first, second := testCA(), newAuthority("Second CA")
	good := certPEM(first.cert.Raw, second.cert.Raw)
	for _, tt := range []struct {
		name string
		data []byte
		want []string // empty: loaded
	}{
		{"bundle of two", good, nil},
		{"a key among certificates is passed over", slices.Concat(keyPEM(ecdsaKey()), good), nil},
		{"empty file", nil, []string{"is empty"}},
		{"key instead of the bundle", keyPEM(ecdsaKey()), []string{"no certificate", "swapped"}},
		{"second one is bad", slices.Concat(certPEM(first.cert.Raw), certPEM([]byte{0x30, 0})), []string{"line 11:", "take it out"}},
		{"last one is cut", good[:len(good)-20], []string{"line 11:", "cut short"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := write(t, "ca.pem", tt.data)
			pool, err := LoadPool(file)
			if len(tt.want) == 0 {
				want := first.pool()
				want.AddCert(second.cert)
				if err != nil || !pool.Equal(want) {
					t.Fatalf("pool is not the two authorities; error %v", err)
				}
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range append(tt.want, file) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q\ndoes not name %q", err, want)
				}
			}
		})
	}
}

// C008: a renewal that is being written shows every prefix of the new file to
// whoever reads it at the wrong moment.
func TestLoadRefusesEveryPrefixOfAChain(t *testing.T) {
	ca := testCA()
	chain := bytes.TrimRight(certPEM(ca.issue("dev.example", ecdsaKey(), nil).Certificate[0], ca.cert.Raw), "\n")
	first := bytes.Index(chain[1:], []byte("-----BEGIN")) + 1
	for cut := range chain {
		blocks, err := splitPEM(chain[:cut])
		// Right behind the first certificate nothing tells that one more comes.
		if whole := cut == first || cut == first-1; whole != (err == nil) || whole && len(blocks) != 1 {
			t.Fatalf("cut at %d of %d: %d blocks, error %v", cut, len(chain), len(blocks), err)
		}
	}
}
