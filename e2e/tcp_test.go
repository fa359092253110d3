package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/mqttlb/mqttlb/e2e/rig"
)

// startGreeter serves a protocol in which the server speaks first: a banner,
// then an echo until the client has said all.
func startGreeter(t *testing.T, banner string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", freeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				io.WriteString(c, banner+"\r\n")
				io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

// The generic service: nothing is read of the connection, so a server that
// speaks first is heard, in the clear, behind TLS that ends here, and behind
// TLS of the client's own.
func TestGenericTCPCarriesProtocolsInWhichTheServerSpeaksFirst(t *testing.T) {
	certs := newPKI(t)
	own := certs.server(t, "lb", rig.ECDSA)
	plain, encrypted := freeAddr(t), freeAddr(t)
	readyLB(t, fmt.Sprintf(`
listeners:
  - {name: plain, address: %q, pool: greeters, protocol: tcp}
  - {name: tls, address: %q, pool: greeters, protocol: tcp, tls: {mode: terminate, certificates: [{cert: %q, key: %q}]}}
pools:
  - {name: greeters, backends: [{name: greeter, address: %q}]}
`, plain, encrypted, own.Cert, own.Key, startGreeter(t, "220 ready")))
	for name, to := range map[string]way{"plain": {addr: plain}, "tls": {addr: encrypted, tls: certs.trust()}} {
		t.Run(name, func(t *testing.T) {
			d := must(to.dial(t))(t)
			if to.tls != nil { // the client has to begin TLS, and nothing but that
				if err := d.Conn.(interface{ Handshake() error }).Handshake(); err != nil {
					t.Fatal(err)
				}
			}
			r := bufio.NewReader(d)
			if line, err := r.ReadString('\n'); err != nil || line != "220 ready\r\n" {
				t.Fatalf("read %q, %v; want the banner before a byte was sent", line, err)
			}
			said := strings.Repeat("what is no MQTT at all\n", 10_000)
			go io.WriteString(d, said)
			heard := make([]byte, len(said))
			if _, err := io.ReadFull(r, heard); err != nil || string(heard) != said {
				t.Errorf("the echo differs from what was said, %v", err)
			}
			if err := d.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if rest, err := io.ReadAll(r); err != nil || len(rest) != 0 {
				t.Errorf("after the client's FIN: %q, %v; want the server's", rest, err)
			}
		})
	}
}
