package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
)

func TestReasonOf(t *testing.T) {
	dial := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
	}
	for _, tc := range []struct {
		name string
		err  error
		want Reason
	}{
		{"nothing", nil, ""},
		{"nobody listens", dial(syscall.ECONNREFUSED), Refused},
		{"no route to the host", dial(syscall.EHOSTUNREACH), Unreachable},
		{"no route to the network", dial(syscall.ENETUNREACH), Unreachable},
		{"a local filter forbids it", dial(syscall.EPERM), Unreachable},
		{"the kernel gave up on SYN", dial(syscall.ETIMEDOUT), Timeout},
		{"deadline of a dial", &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, Timeout},
		{"deadline of a context", fmt.Errorf("dial b1: %w", context.DeadlineExceeded), Timeout},
		{"timeout of a check", noAnswer{time.Second}, Timeout},
		{"unknown host", &net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}, Unresolved},
		{"silent name server", &net.OpError{Op: "dial", Err: &net.DNSError{IsTimeout: true}}, Unresolved},
		{"reset while reading", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, Reset},
		{"reset before writing", &net.OpError{Op: "write", Err: syscall.EPIPE}, Reset},
		{"end of stream", io.EOF, Closed},
		{"end in the middle", fmt.Errorf("read: %w", io.ErrUnexpectedEOF), Closed},
		{"bad certificate", &tls.CertificateVerificationError{Err: errors.New("x")}, TLS},
		{"not TLS", tls.RecordHeaderError{Msg: "x"}, TLS},
		{"alert from the backend", &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, TLS},
		{"no descriptors left", dial(syscall.EMFILE), Local},
		{"no local ports left", dial(syscall.EADDRNOTAVAIL), Local},
		{"sorted already", fmt.Errorf("check: %w", &Error{ServerUnavailable, io.EOF}), ServerUnavailable},
		{"anything else", errors.New("x"), Other},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ReasonOf(tc.err)
			if got != tc.want {
				t.Fatalf("%v is %q, want %q", tc.err, got, tc.want)
			}
			if tc.err != nil && !slices.Contains(Reasons(), got) {
				t.Fatalf("%q is not in the closed list", got)
			}
		})
	}
}
