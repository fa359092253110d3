package command

import (
	"context"
	"errors"
	"net"
	"syscall"

	"github.com/mqttlb/mqttlb/pkg/config"
	"github.com/mqttlb/mqttlb/pkg/listen"
)

// Located is a configuration that knows where its keys stand.
type Located interface {
	Problem(key, what, mend string) config.Problem
}

// Binder opens the listening sockets of a configuration: all of them or none.
type Binder struct {
	Config Located

	opened   []net.Listener
	problems []error
}

// Listen opens the socket of an address, which the key names. It gives nil for
// an empty address, and for one that can't be listened on.
func (b *Binder) Listen(ctx context.Context, address, key string) net.Listener {
	if address == "" {
		return nil
	}
	l, err := listen.Listen(ctx, address)
	if err != nil {
		b.problems = append(b.problems, errors.New(b.Config.Problem(key, bindFault(address, err), "").String()))
		return nil
	}
	b.opened = append(b.opened, l)
	return l
}

// Err tells all that went wrong. If anything did, nothing stays open.
func (b *Binder) Err() error {
	if len(b.problems) == 0 {
		return nil
	}
	for _, l := range b.opened {
		l.Close()
	}
	return errors.Join(b.problems...)
}

func bindFault(address string, err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "cannot listen on " + address + ": another process listens there; stop it or choose another port"
	case errors.Is(err, syscall.EACCES):
		return "cannot listen on " + address + ": ports below 1024 need CAP_NET_BIND_SERVICE; grant it or choose another port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "cannot listen on " + address + ": this machine has no such address"
	default:
		return "cannot listen on " + address + ": " + err.Error()
	}
}
