package health

import "context"

// TCP checks that the port takes connections, and nothing else: a broker that accepts
// and never answers passes. It sends no byte, and no PROXY header.
type TCP struct{}

// Probe connects and leaves.
func (TCP) Probe(ctx context.Context, addr string) error {
	c, err := dial(ctx, addr)
	if err != nil {
		return err
	}
	_ = c.Close()
	return nil
}
