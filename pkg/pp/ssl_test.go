package pp

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"
)

func TestSSL_BytesOnTheWire(t *testing.T) {
	for _, tt := range []struct {
		name string
		ssl  SSL
		hex  string // of the value
	}{
		{"nothing", SSL{}, "00 00000000"},
		{"TLS without a client certificate", SSL{Client: true, Verify: NotVerified, Version: "TLSv1.2"},
			"01 00000001 210007 544c5376312e32"},
		{"mTLS", SSL{Client: true, CertConn: true, CertSess: true, Version: "TLSv1.3", CN: "dév", Cipher: "C", SigAlg: "RSA-SHA256", KeyAlg: "RSA2048"},
			"07 00000000 210007 544c5376312e33 220004 64c3a976 250007 52534132303438 24000a 5253412d534841323536 230001 43"},
		{"certificate from the session", SSL{Client: true, CertSess: true}, "05 00000000"},
		{"OpenSSL's verify result", SSL{Client: true, CertConn: true, CertSess: true, Verify: 0x01020304}, "07 01020304"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.ssl.TLV()
			if want := unhex(t, tt.hex); got.Type != SSLInfo || string(got.Value) != string(want) {
				t.Errorf("%v\n got %x\nwant %x", got.Type, got.Value, want)
			}
			back, err := ParseSSL(got.Value)
			if err != nil || back != tt.ssl {
				t.Errorf("read back as %+v, %v", back, err)
			}
		})
	}
}

func TestParseSSL_PassesOverWhatItDoesNotKnow(t *testing.T) {
	got, err := ParseSSL([]byte("\xff\x00\x00\x00\x00" +
		tlv(SSLGroup, "x25519") + tlv(SSLSigScheme, "ed25519") + tlv(SSLClientCert, "\x30\x82") +
		tlv(0x29, "a") + tlv(0x29, "b") + tlv(SSLCN, "dev-1")))
	want := SSL{Client: true, CertConn: true, CertSess: true, CN: "dev-1"}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestParseSSL_Refuses(t *testing.T) {
	const head = "\x07\x00\x00\x00\x00"
	for _, tt := range []struct{ name, value, says string }{
		{"empty", "", "0 bytes, at least 5"},
		{"no room for verify", "\x01\x00\x00\x00", "4 bytes, at least 5"},
		{"stray byte", head + "\x21", "1 stray bytes"},
		{"overrun", head + "\x21\x00\x08TLSv1.3", "SSL_VERSION (0x21) announces 8 bytes, 7 are left"},
		{"CN twice", head + tlv(SSLCN, "admin") + tlv(SSLCN, "dev"), "SSL_CN (0x22) stands there twice"},
		{"certificate twice", head + tlv(SSLClientCert, "a") + tlv(SSLClientCert, "b"), "SSL_CLIENT_CERT (0x28) stands there twice"},
		{"CN that is not UTF-8", head + tlv(SSLCN, "d\xe9v"), "SSL_CN (0x22) is not in"},
		{"version that is not ASCII", head + tlv(SSLVersion, "TLSé"), "SSL_VERSION (0x21) is not in"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseSSL([]byte(tt.value))
			if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v, want ErrMalformed that says %q", err, tt.says)
			}
			if got != (SSL{}) {
				t.Errorf("gave %+v beside the error", got)
			}
		})
	}
}

// HAProxy writes verify 0 for a client that showed no certificate at all.
func TestSSL_VerifiedAsksForACertificate(t *testing.T) {
	for _, tt := range []struct {
		name string
		ssl  SSL
		want bool
	}{
		{"zero value", SSL{}, false},
		{"verify 0 and no certificate", SSL{Client: true}, false},
		{"verify 0 and no TLS", SSL{CertConn: true, CertSess: true}, false},
		{"certificate on the connection", SSL{Client: true, CertConn: true}, true},
		{"certificate in the session", SSL{Client: true, CertSess: true}, true},
		{"certificate that failed", SSL{Client: true, CertConn: true, CertSess: true, Verify: 18}, false},
	} {
		if got := tt.ssl.Verified(); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// authority signs the certificates of one test.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pool *x509.CertPool
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := authority{cert: cert, key: key, pool: x509.NewCertPool()}
	a.pool.AddCert(cert)
	return a
}

func (a authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"broker.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// handshake gives the server's view of one connection. It goes over a socket:
// on a net.Pipe a resumption stalls, both ends writing at once.
func handshake(t *testing.T, server, client *tls.Config) tls.ConnectionState {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		c, err := tls.Dial("tcp", l.Addr().String(), client)
		if err == nil {
			_, err = io.Copy(io.Discard, c) // the session tickets
			c.Close()
		}
		done <- err
	}()
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s := tls.Server(near, server)
	err = s.Handshake()
	state := s.ConnectionState()
	s.Close()
	if clientErr := <-done; err != nil || clientErr != nil {
		t.Fatalf("handshake: server %v, client %v", err, clientErr)
	}
	return state
}

func TestSSLFromState_RealHandshakes(t *testing.T) {
	ca := newAuthority(t)
	shown, device := ca.issue(t, "broker"), ca.issue(t, "dev-000001")
	for _, version := range []struct {
		id           uint16
		name, cipher string
	}{
		{tls.VersionTLS12, "TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"},
		{tls.VersionTLS13, "TLSv1.3", "TLS_AES_128_GCM_SHA256"},
	} {
		common := SSL{Client: true, Verify: NotVerified, Version: version.name, SigAlg: "ecdsa-with-SHA256", KeyAlg: "EC256"}
		for _, tt := range []struct {
			name     string
			auth     tls.ClientAuthType
			client   []tls.Certificate
			resumed  bool
			edit     func(*SSL)
			verified bool
		}{
			{"no client certificate", tls.VerifyClientCertIfGiven, nil, false, func(*SSL) {}, false},
			{"client certificate", tls.RequireAndVerifyClientCert, []tls.Certificate{device}, false,
				func(s *SSL) { s.CertConn, s.CertSess, s.CN, s.Verify = true, true, "dev-000001", 0 }, true},
			{"client certificate, resumed", tls.RequireAndVerifyClientCert, []tls.Certificate{device}, true,
				func(s *SSL) { s.CertSess, s.CN, s.Verify = true, "dev-000001", 0 }, true},
			{"client certificate that nobody verified", tls.RequireAnyClientCert, []tls.Certificate{device}, false,
				func(s *SSL) { s.CertConn, s.CertSess, s.CN = true, true, "dev-000001" }, false},
		} {
			t.Run(version.name+"/"+tt.name, func(t *testing.T) {
				server := &tls.Config{
					Certificates: []tls.Certificate{shown}, ClientAuth: tt.auth, ClientCAs: ca.pool,
					MaxVersion: version.id,
				}
				client := &tls.Config{
					RootCAs: ca.pool, ServerName: "broker.example", Certificates: tt.client,
					ClientSessionCache: tls.NewLRUClientSessionCache(1),
				}
				state := handshake(t, server, client)
				if tt.resumed {
					state = handshake(t, server, client)
				}
				if state.DidResume != tt.resumed {
					t.Fatalf("resumed: %v, want %v", state.DidResume, tt.resumed)
				}
				want := common
				tt.edit(&want)
				got := SSLFromState(&state, shown.Leaf)
				want.Cipher = got.Cipher // the machine's AES decides between suites
				if got != want {
					t.Errorf("\n got %+v\nwant %+v", got, want)
				}
				if got.Cipher != cipherName(state.CipherSuite) || got.Verified() != tt.verified {
					t.Errorf("cipher %q, verified %v", got.Cipher, got.Verified())
				}
			})
		}
	}
}

func TestSSLFromState_WithoutTheCertificateShownItsAlgorithmsStayEmpty(t *testing.T) {
	got := SSLFromState(&tls.ConnectionState{Version: tls.VersionTLS13, CipherSuite: tls.TLS_AES_128_GCM_SHA256}, nil)
	want := SSL{Client: true, Verify: NotVerified, Version: "TLSv1.3", Cipher: "TLS_AES_128_GCM_SHA256"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestNames_AreOpenSSLs(t *testing.T) {
	for id, want := range map[uint16]string{
		tls.VersionTLS10: "TLSv1", tls.VersionTLS11: "TLSv1.1", tls.VersionTLS12: "TLSv1.2", tls.VersionTLS13: "TLSv1.3", 0x0399: "0x0399",
	} {
		if got := versionName(id); got != want {
			t.Errorf("version 0x%04x: %q, want %q", id, got, want)
		}
	}
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		// OpenSSL writes dashes, except in TLS 1.3, where it took IANA's names.
		got, tls13 := cipherName(suite.ID), suite.SupportedVersions[0] == tls.VersionTLS13
		if tls13 != (got == suite.Name) || tls13 != strings.Contains(got, "_") {
			t.Errorf("cipher %s: %q", suite.Name, got)
		}
	}
	if got := cipherName(0xFFFF); got != "0xFFFF" {
		t.Errorf("unknown cipher: %q", got)
	}
	for a := x509.MD5WithRSA; a <= x509.PureEd25519; a++ {
		if got := sigAlgName(a); (got == "") != (a == x509.DSAWithSHA1 || a == x509.DSAWithSHA256) {
			t.Errorf("signature algorithm %v: %q", a, got)
		}
	}
	for want, key := range map[string]any{
		"RSA2048": &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2047)},
		"EC256":   &ecdsa.PublicKey{Curve: elliptic.P256()},
		"EC521":   &ecdsa.PublicKey{Curve: elliptic.P521()},
		"ED25519": ed25519.PublicKey{},
		"":        nil,
	} {
		if got := keyAlgName(key); got != want {
			t.Errorf("key %T: %q, want %q", key, got, want)
		}
	}
}
