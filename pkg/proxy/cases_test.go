package proxy

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// stream is one line of a testdata/Cnnn.hex: what people met in the field, and
// what has to come of it.
type stream struct {
	label  string
	expect []string // alternatives
	bytes  []byte
}

func readCase(tb testing.TB, name string) []stream {
	tb.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".hex"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	var streams []stream
	for lines := bufio.NewScanner(f); lines.Scan(); {
		col := strings.Fields(lines.Text())
		if len(col) != 3 || col[0] == "#" {
			continue
		}
		b, err := hex.DecodeString(col[2])
		if err != nil {
			tb.Fatalf("%s: %s: %v", name, col[0], err)
		}
		streams = append(streams, stream{col[0], strings.Split(col[1], "|"), b})
	}
	if len(streams) == 0 {
		tb.Fatalf("%s holds no streams", name)
	}
	return streams
}

func streamOf(tb testing.TB, name, label string) []byte {
	tb.Helper()
	for _, s := range readCase(tb, name) {
		if s.label == label {
			return s.bytes
		}
	}
	tb.Fatalf("%s has no %s", name, label)
	return nil
}

// recorder is a broker that says yes and gives what it was sent first.
func recorder(tb testing.TB) (address string, connects chan []byte) {
	connects = make(chan []byte, 4096)
	return broker(tb, func(p *peer, connect []byte) {
		connects <- connect
		_, _ = p.rest()
	}), connects
}

// outcome says what a client meets that sends b, in the words of the case
// files, and the CONNECT that a backend saw of it.
func outcome(r *rig, c *peer, connects <-chan []byte, b []byte) (how string, connect []byte) {
	r.t.Helper()
	c.send(b)
	head := make([]byte, 4)
	n, _ := readFull(c, head)
	switch {
	case n == 0:
		return "close", nil
	case n < 4 || head[0] != 0x20:
		return fmt.Sprintf("% x", head[:n]), nil
	case head[3] != 0:
		if _, err := c.rest(); err != nil {
			return "connack and " + err.Error(), nil
		}
		return "connack=" + hex.EncodeToString(head[3:]) + ",close", nil
	}
	return "accept", <-connects
}

func readFull(p *peer, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var k int
		k, err = p.Read(b[n:])
		n += k
	}
	return n, err
}

// What the case files leave open, or to who judges credentials: the backend,
// which says yes here.
var passedOn = []string{"auth-result", "accept-or-auth-result", "accept+assigned-id"}

func TestCasesOfConnect_C001_C002_C003_C004_C025(t *testing.T) {
	onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
		address, connects := recorder(t)
		r := newRig(t, []string{address}, front)
		for _, name := range []string{"C001", "C002", "C003", "C004", "C025"} {
			for _, s := range readCase(t, name) {
				t.Run(name+"/"+s.label, func(t *testing.T) {
					c := wrap(r.dial())
					how, connect := outcome(r, c, connects, s.bytes)
					c.Close()
					e := r.end()
					want := slices.Clone(s.expect)
					for i := range want {
						if slices.Contains(passedOn, want[i]) {
							want[i] = "accept"
						}
					}
					if !slices.Contains(want, how) {
						t.Fatalf("got %s, want %s", how, strings.Join(want, " or "))
					}
					if how == "accept" {
						if !bytes.Equal(connect, s.bytes) {
							t.Errorf("the backend was sent % x", connect)
						}
						view, _, _ := mqtt.ParseConnect(s.bytes, 0)
						if e.ClientID != string(view.ClientID) || e.Version != view.Version {
							t.Errorf("placed as %q of %s", e.ClientID, e.Version)
						}
						return
					}
					if e.Backend != "" || e.Opened || len(connects) > 0 {
						t.Errorf("a backend was dialled for it: %+v", e)
					}
				})
			}
		}
	})
}

// C004, C025: where the CONNECT says 5.0, the reason is the specification's.
func TestRepeatedPropertyIsAProtocolError_C004(t *testing.T) {
	address, connects := recorder(t)
	r := newRig(t, []string{address})
	for _, s := range readCase(t, "C004")[:4] {
		c := r.dial()
		if how, _ := outcome(r, c, connects, s.bytes); how != "connack=82,close" {
			t.Errorf("%s: %s", s.label, how)
		}
		c.Close()
		if e := r.ended(StageConnect, ByMqttlb, ProtocolError); e.Answer != mqtt.ProtocolError {
			t.Errorf("%s: the record says that the client was told %s", s.label, e.Answer)
		}
	}
}

// C002: level 5 leaves the name to the broker, and its answer comes back.
func TestEmptyClientIDOf5GoesToTheBackendAndItsAnswerComesBack_C002(t *testing.T) {
	answer := append([]byte{0x20, 14, 0, 0, 11, byte(mqtt.PropAssignedClientIdentifier), 0, 8}, "auto-123"...)
	r := newRig(t, []string{serve(t, func(p *peer) {
		p.readConnect()
		p.send(answer)
		_, _ = p.rest()
	})})
	c := r.dial()
	c.send(streamOf(t, "C002", "v5"))
	c.expect(answer)
}

func TestConnectCutAtEveryByte_C005(t *testing.T) {
	for _, front := range fronts {
		address, connects := recorder(t)
		r := build(t, []string{address}, front.setup)
		defer r.close()
		for _, s := range readCase(t, "C005") {
			step := 1
			if front.name == "tls" {
				step = 13
			}
			t.Run(front.name+"/"+s.label, func(t *testing.T) {
				for k := 1; k < len(s.bytes); k += step {
					c := front.wrap(r.pipe("192.0.2.1:4000"))
					c.send(s.bytes[:k]) // read before this returns
					how, connect := outcome(r, c, connects, s.bytes[k:])
					c.Close()
					if e := r.end(); how != "accept" || !bytes.Equal(connect, s.bytes) || e.Backend != "b1" {
						t.Fatalf("cut at %d: %s, %v", k, how, e.Err)
					}
				}
			})
			t.Run(front.name+"/"+s.label+"/one byte a write", func(t *testing.T) {
				c := front.wrap(r.pipe("192.0.2.1:4000"))
				for i := range s.bytes[1:] {
					c.send(s.bytes[i : i+1])
				}
				how, connect := outcome(r, c, connects, s.bytes[len(s.bytes)-1:])
				c.Close()
				if r.end(); how != "accept" || !bytes.Equal(connect, s.bytes) {
					t.Fatal(how)
				}
			})
		}
	}
}

// C006: the answers to what was sent early come after CONNACK, each once.
func TestPacketsBehindConnectArriveOnceAndInOrder_C006(t *testing.T) {
	all := streamOf(t, "C006", "connect-subscribe-publish-ping")
	_, size, _ := mqtt.ParseConnect(all, 0)
	replies := []byte{0x90, 3, 0, 1, 0, 0x30, 10, 0, 3, 't', '/', 'a', 'h', 'e', 'l', 'l', 'o', 0xD0, 0}
	backend := func(t *testing.T, got chan<- []byte) string {
		return serve(t, func(p *peer) {
			header, err := readLine(p)
			connect := p.readConnect()
			// Nothing behind CONNECT may come before the answer to it.
			rest := make([]byte, len(all)-size)
			_ = p.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if n, _ := p.Read(rest); n > 0 {
				t.Errorf("%d bytes behind CONNECT came before CONNACK was sent", n)
			}
			_ = p.SetReadDeadline(time.Now().Add(patience))
			p.send(connack311)
			_, err2 := readFull(p, rest)
			p.send(replies)
			got <- slices.Concat([]byte(header), connect, rest)
			if err != nil || err2 != nil {
				t.Error(err, err2)
			}
			_, _ = p.rest()
		})
	}
	for _, x := range []struct {
		name   string
		pieces [][]byte
	}{
		{"one write", [][]byte{all}},
		{"two writes, two TLS records", [][]byte{all[:size+5], all[size+5:]}},
		{"cut within CONNECT", [][]byte{all[:9], all[9:]}},
	} {
		t.Run(x.name, func(t *testing.T) {
			onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
				got := make(chan []byte, 1)
				dialled, go_ := make(chan bool), make(chan bool)
				r := newRig(t, []string{backend(t, got)}, front, sendHeader(HeaderV1, TLVs{}), delayDial(dialled, go_))
				c := wrap(r.dial())
				for _, p := range x.pieces {
					c.send(p)
				}
				<-dialled // all pieces but the first may come while this goes on
				close(go_)
				c.expect(slices.Concat(connack311, replies))
				header := fmt.Sprintf("PROXY TCP4 127.0.0.1 127.0.0.1 %d %d\r\n", portOf(c.Conn.LocalAddr()), portOf(c.Conn.RemoteAddr()))
				if b := <-got; !bytes.Equal(b, append([]byte(header), all...)) {
					t.Errorf("the backend got %q", b)
				}
			})
		})
	}
}

// C006: nothing behind a refused CONNECT takes effect, and the answer is not
// lost to a RST for the bytes that nobody read.
func TestRefusedConnectWithMoreBehindIsAnswered_C006(t *testing.T) {
	onBothFronts(t, func(t *testing.T, front setup, wrap func(*peer) *peer) {
		address, connects := recorder(t)
		r := newRig(t, []string{address}, front)
		c := wrap(r.dial())
		b := streamOf(t, "C006", "rejected-connect-then-publish")
		how, _ := outcome(r, c, connects, append(b, bytes.Repeat([]byte("more"), 4<<10)...))
		if how != "connack=02,close" || len(connects) > 0 {
			t.Error(how)
		}
		c.Close()
		r.ended(StageConnect, ByMqttlb, IdentifierRejected)
	})
}
