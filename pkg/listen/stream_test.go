package listen

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

func mustPrefixes(all ...string) (p []netip.Prefix) {
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

// tcpPair are the two ends of a connection over the loopback.
func tcpPair(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	for _, x := range []net.Conn{c, s} {
		_ = x.SetDeadline(time.Now().Add(20 * time.Second))
	}
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// tlsPair are the two ends with TLS on top.
func tlsPair(t *testing.T) (client, server *tls.Conn) {
	t.Helper()
	c, s := tcpPair(t)
	cert := selfSigned(t, "a.example")
	client = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	server = tls.Server(s, &tls.Config{Certificates: []tls.Certificate{cert}})
	var both sync.WaitGroup
	both.Go(func() {
		if err := client.Handshake(); err != nil {
			t.Error(err)
		}
	})
	if err := server.Handshake(); err != nil {
		t.Error(err)
	}
	both.Wait()
	return client, server
}

func TestAbortIsAResetAfterTheBytesBeforeIt(t *testing.T) {
	words := bytes.Repeat([]byte("x"), 1<<10)
	t.Run("plain", func(t *testing.T) {
		c, s := tcpPair(t)
		_, _ = s.Write(words)
		NewStream(s).Abort()
		wantReset(t, c, words)
	})
	t.Run("tls", func(t *testing.T) {
		c, s := tlsPair(t)
		_, _ = s.Write(words)
		NewStream(s).Abort()
		wantReset(t, c, words)
	})
	t.Run("no socket", func(t *testing.T) {
		c, s := net.Pipe()
		NewStream(s).Abort()
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Error(err)
		}
	})
}

func wantReset(t *testing.T, c net.Conn, want []byte) {
	t.Helper()
	b, err := io.ReadAll(c)
	if !errors.Is(err, syscall.ECONNRESET) || !bytes.Equal(b, want) {
		t.Errorf("%d bytes of %d, then %v; want RST", len(b), len(want), err)
	}
}

// Bytes for a peer that does not read are waited for, but not for ever; for one
// that is gone not at all.
func TestAbortWaitsOnlyWhereItHelps(t *testing.T) {
	for _, gone := range []bool{false, true} {
		c, s := tcpPair(t)
		_ = c.SetReadBuffer(4 << 10)
		_ = s.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		for {
			if _, err := s.Write(make([]byte, 64<<10)); err != nil {
				break // all is full
			}
		}
		if gone {
			_ = c.SetLinger(0)
			c.Close()
			if _, err := s.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Fatal(err)
			}
		}
		begun := time.Now()
		NewStream(s).Abort()
		if took := time.Since(begun); gone && took > abortPatience/2 || !gone && took > 2*abortPatience+abortPatience/2 {
			t.Errorf("gone %v: %v", gone, took)
		}
	}
}

func TestCloseWriteIsFINAfterCloseNotify(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		c, s := tcpPair(t)
		if err := NewStream(s).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Error(err)
		}
		_, _ = c.Write([]byte("x"))
		if _, err := s.Read(make([]byte, 1)); err != nil {
			t.Errorf("the other direction: %v", err)
		}
	})
	t.Run("tls", func(t *testing.T) {
		c, s := tlsPair(t)
		if err := NewStream(s).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != io.EOF { // without close_notify: unexpected EOF
			t.Error(err)
		}
		if _, err := c.NetConn().Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("no FIN: %v", err)
		}
		_, _ = c.Write([]byte("x"))
		if _, err := s.Read(make([]byte, 1)); err != nil {
			t.Errorf("the other direction: %v", err)
		}
	})
}

// A close with unread bytes would be a RST, which takes the answer away.
func TestCloseLingeringLetsThePeerReadTheAnswer(t *testing.T) {
	c, s := tcpPair(t)
	if _, err := c.Write(make([]byte, 32<<10)); err != nil {
		t.Fatal(err)
	}
	_, _ = s.Write([]byte("answer"))
	done := make(chan bool)
	go func() {
		NewStream(s).CloseLingering(10*time.Second, 1<<20)
		close(done)
	}()
	if b, err := io.ReadAll(c); err != nil || string(b) != "answer" {
		t.Errorf("%q, %v", b, err)
	}
	c.Close()
	<-done
}

func TestCloseLingeringIsBounded(t *testing.T) {
	t.Run("in time", func(t *testing.T) {
		_, s := tcpPair(t)
		begun := time.Now()
		NewStream(s).CloseLingering(30*time.Millisecond, 1<<20)
		if took := time.Since(begun); took < 30*time.Millisecond || took > 5*time.Second {
			t.Errorf("took %v", took)
		}
	})
	t.Run("in bytes", func(t *testing.T) {
		c, s := tcpPair(t)
		var sending sync.WaitGroup
		sending.Go(func() {
			for {
				if _, err := c.Write(make([]byte, 16<<10)); err != nil {
					return
				}
			}
		})
		NewStream(s).CloseLingering(time.Minute, 64<<10)
		sending.Wait()
	})
}

func TestWakeEndsReadsAndGivesWritesTheirPatience(t *testing.T) {
	c, s := tcpPair(t)
	st := NewStream(s)
	got := make(chan error)
	go func() {
		_, err := s.Read(make([]byte, 1))
		got <- err
	}()
	st.Wake(10 * time.Second)
	if err := <-got; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
	if _, err := s.Write([]byte("last words")); err != nil {
		t.Errorf("write: %v", err)
	}
	if _, err := io.ReadFull(c, make([]byte, 10)); err != nil {
		t.Error(err)
	}
}
