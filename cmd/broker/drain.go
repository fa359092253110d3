package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/mqttlb/mqttlb/pkg/admin/brokeradmin"
)

const (
	// drainRate is what broker drain asks for without a pace.
	drainRate = "50/s"
	// drainEvery is how often it asks how far that is.
	drainEvery = 500 * time.Millisecond
	drainPath  = "/api/v1/drain"
)

func drainCommand() *cobra.Command {
	var w where
	var pace string
	var within time.Duration
	var cancel, status bool
	c := &cobra.Command{
		Use:   "drain",
		Short: "Let a node's clients go at a pace, before maintenance",
		Long: `Let a node's clients go at a pace: they come back on other nodes one by one. The
node is not ready from the beginning, and refuses new clients. Sessions stay.

It waits until no client is left. Ctrl-C ends the waiting, not the drain;
--cancel ends the drain, and so does the end of the broker.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			order := map[string]any{}
			if pace == "" && within == 0 {
				pace = drainRate
			}
			if pace != "" {
				n, err := rate(pace)
				if err != nil {
					return err
				}
				order["rate"] = n
			}
			switch {
			case within < 0:
				return fmt.Errorf("--within %s: write a time above 0", within)
			case within > 0:
				order["within"] = within.String()
			}
			address, err := w.address()
			if err != nil {
				return err
			}
			d := drainWatch{address: address, out: c.OutOrStdout()}
			switch {
			case cancel:
				return d.cancel(c.Context())
			case status:
				return d.status(c.Context())
			default:
				return d.run(c.Context(), order)
			}
		},
	}
	w.flags(c)
	c.Flags().StringVar(&pace, "rate", "", "clients let go in a time, on average: 50/s, 30/m (default "+drainRate+", unless --within)")
	c.Flags().DurationVar(&within, "within", 0, "let all go within this time; with --rate, whichever is faster")
	c.Flags().BoolVar(&cancel, "cancel", false, "end a drain: the node takes clients again")
	c.Flags().BoolVar(&status, "status", false, "tell how far a drain is")
	c.MarkFlagsMutuallyExclusive("cancel", "status", "rate")
	c.MarkFlagsMutuallyExclusive("cancel", "status", "within")
	return c
}

// drainWatch asks a broker to let its clients go, and tells how far that is.
type drainWatch struct {
	address string
	out     io.Writer
}

func (d drainWatch) ask(ctx context.Context, method string, body any) (brokeradmin.Progress, error) {
	var p brokeradmin.Progress
	err := ask(ctx, method, d.address, drainPath, body, &p)
	if err != nil {
		err = failed(err)
	}
	return p, err
}

func (d drainWatch) cancel(ctx context.Context) error {
	p, err := d.ask(ctx, http.MethodDelete, nil)
	if err == nil {
		fmt.Fprintf(d.out, "no drain: the node takes clients, and has %d\n", p.Remaining)
	}
	return err
}

func (d drainWatch) status(ctx context.Context) error {
	p, err := d.ask(ctx, http.MethodGet, nil)
	if err == nil {
		d.tell(p)
	}
	return err
}

func (d drainWatch) tell(p brokeradmin.Progress) {
	switch {
	case !p.Active:
		fmt.Fprintf(d.out, "no drain: the node takes clients, and has %d\n", p.Remaining)
	case p.Remaining == 0:
		fmt.Fprintln(d.out, "drained: no client is left, and new ones are refused until broker drain --cancel or the end of the broker")
	default:
		left := time.Duration(float64(p.Remaining) / p.Rate * float64(time.Second)).Round(time.Second)
		fmt.Fprintf(d.out, "%d of %d clients are left, %.3g go each second: about %s\n", p.Remaining, max(p.Clients, p.Remaining), p.Rate, max(left, time.Second))
	}
}

// run asks for a drain and follows it to its end.
func (d drainWatch) run(ctx context.Context, order any) error {
	p, err := d.ask(ctx, http.MethodPost, order)
	if err != nil {
		return err
	}
	d.tell(p)
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for last := p.Remaining; p.Active && p.Remaining > 0; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			fmt.Fprintln(d.out, "the drain goes on; broker drain --status tells how far it is, --cancel ends it")
			return nil
		}
		if p, err = d.ask(ctx, http.MethodGet, nil); err != nil {
			if ctx.Err() != nil {
				continue
			}
			return err
		}
		if p.Remaining != last || !p.Active {
			d.tell(p)
		}
		last = p.Remaining
	}
	return nil
}
