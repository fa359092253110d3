package command

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/config"
)

// issuer makes certificates in a folder of its own.
type issuer struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	ca := &issuer{t: t, dir: t.TempDir()}
	ca.cert, ca.key = ca.sign("ca", func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage, c.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
	})
	return ca
}

func (ca *issuer) file(name string) string { return filepath.Join(ca.dir, name) }

// sign writes name.crt and name.key, for 127.0.0.1, server and client.
func (ca *issuer) sign(name string, change func(*x509.Certificate)) (*x509.Certificate, *ecdsa.PrivateKey) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(template)
	}
	parent, signer := ca.cert, ca.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		ca.t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(ca.file(name+file), pem.EncodeToMemory(block), 0o600); err != nil {
			ca.t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		ca.t.Fatal(err)
	}
	return cert, key
}

func (ca *issuer) node(name string) *config.ClusterTLS {
	return &config.ClusterTLS{Certificate: ca.file(name + ".crt"), Key: ca.file(name + ".key"), CA: ca.file("ca.crt")}
}

func TestNodesTakeEachOtherAndNobodyElse(t *testing.T) {
	ours, theirs := newIssuer(t), newIssuer(t)
	ours.sign("b1", nil)
	ours.sign("b2", nil)
	theirs.sign("b3", nil)
	load := func(ca *issuer, name string) *tls.Config {
		files := TLSFiles{Config: keys{}}
		cfg := files.Nodes(ca.node(name), "cluster.tls")
		if len(files.Problems)+len(files.Warnings) > 0 || len(files.Shown) != 1 {
			t.Fatalf("%s: problems %v, warnings %v, shown %v", name, files.Problems, files.Warnings, files.Shown)
		}
		return cfg
	}
	for _, row := range []struct {
		name string
		as   *tls.Config
		ok   bool
	}{
		{"a node", load(ours, "b2"), true},
		{"a node of another cluster", load(theirs, "b3"), false},
		{"without a certificate", &tls.Config{RootCAs: load(ours, "b2").RootCAs}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			l, err := tls.Listen("tcp", "127.0.0.1:0", load(ours, "b1"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			server := make(chan error, 1)
			go func() {
				c, err := l.Accept()
				if err == nil {
					_ = c.SetDeadline(time.Now().Add(10 * time.Second))
					err = c.(*tls.Conn).Handshake()
					c.Close()
				}
				server <- err
			}()
			c, client := tls.Dial("tcp", l.Addr().String(), row.as)
			if client == nil {
				defer c.Close()
			}
			if err := <-server; (err == nil) != row.ok {
				t.Errorf("server: %v, client: %v", err, client)
			}
		})
	}
}

func TestACertificateThatNodesWouldNotTakeIsAProblem(t *testing.T) {
	ours, theirs := newIssuer(t), newIssuer(t)
	ours.sign("b1", nil)
	ours.sign("server", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })
	ours.sign("old", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	theirs.sign("b2", nil)
	for _, row := range []struct {
		name          string
		tls           config.ClusterTLS
		key, problem  string
		warning       string
		usableDespite bool
	}{
		{"of someone else", config.ClusterTLS{Certificate: theirs.file("b2.crt"), Key: theirs.file("b2.key"), CA: ours.file("ca.crt")},
			"cluster.tls.certificate", "none of the authorities in", "", false},
		{"for one direction", *ours.node("server"), "cluster.tls.certificate", "not issued for clientAuth", "", false},
		{"without its key", config.ClusterTLS{Certificate: ours.file("b1.crt"), Key: ours.file("ca.key"), CA: ours.file("ca.crt")},
			"cluster.tls.certificate", "b1.crt", "", false},
		{"without an authority", config.ClusterTLS{Certificate: ours.file("b1.crt"), Key: ours.file("b1.key"), CA: ours.file("b1.key")},
			"cluster.tls.ca", "b1.key", "", false},
		{"expired", *ours.node("old"), "", "", "expired at", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			files := TLSFiles{Config: keys{}}
			cfg := files.Nodes(&row.tls, "cluster.tls")
			if (cfg != nil) != row.usableDespite {
				t.Errorf("config %v", cfg)
			}
			switch {
			case row.problem == "":
				if len(files.Problems) > 0 {
					t.Errorf("problems %v", files.Problems)
				}
			case len(files.Problems) != 1 || files.Problems[0].Key != row.key || !strings.Contains(files.Problems[0].What, row.problem):
				t.Errorf("problems %v, want %s: …%s…", files.Problems, row.key, row.problem)
			}
			if all := strings.Join(files.Warnings, "\n"); !strings.Contains(all, row.warning) {
				t.Errorf("warnings %q, want %q", all, row.warning)
			}
		})
	}
}
