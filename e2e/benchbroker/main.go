// Command benchbroker measures the broker beside mosquitto in one run: the same
// work, in alternation, on the same machine, and prints ratios. Absolute figures
// of a shared machine mean little; the ratios are what to quote.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mqttlb/mqttlb/e2e/rig"
)

func main() {
	rounds := flag.Int("rounds", 3, "alternations; the median counts")
	scale := flag.Float64("scale", 1, "how much work, relative to the usual")
	idle := flag.Int("idle", 9500, "connections for the memory figure; 0 leaves it out")
	only := flag.String("only", "", "`words` that a row's name must have")
	state := flag.Int("state", 100_000, "sessions, and retained messages, for the figure of a restart; 0 leaves it out")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *rounds, *scale, *idle, *state, *only); err != nil {
		fmt.Fprintln(os.Stderr, "benchbroker:", err)
		os.Exit(1)
	}
}

// row is a line of the table: what is measured, and what each peer reached.
type row struct {
	name   string
	want   string   // the figure to reach, ours over mosquitto's
	peers  []string // who takes part
	work   func(context.Context, target) (float64, error)
	less   bool // less is better
	format string
}

func run(ctx context.Context, rounds int, scale float64, idle, state int, only string) error {
	if err := rig.Install(ctx, rig.RunPackages...); err != nil {
		return err
	}
	peers, err := newPeers()
	if err != nil {
		return err
	}
	n := func(count int) int { return max(100, int(float64(count)*scale)) }
	rows := []row{
		{name: "QoS 0, 10 to 1, received/s", want: "≥ 2.0", peers: []string{"mosquitto", "1s"}, format: "%.0f",
			work: func(ctx context.Context, t target) (float64, error) {
				return throughput(ctx, t, load{publishers: 10, subscribers: 1, messages: n(200_000)})
			}},
		{name: "QoS 0, 1 to 20, received/s", want: "≥ 2.0", peers: []string{"mosquitto", "1s"}, format: "%.0f",
			work: func(ctx context.Context, t target) (float64, error) {
				return throughput(ctx, t, load{publishers: 1, subscribers: 20, messages: n(40_000)})
			}},
		{name: "QoS 1, 10 to 1, acknowledged/s", want: "1s ≥ 1.0, always ≥ 0.25", peers: []string{"mosquitto", "1s", "always"}, format: "%.0f",
			work: func(ctx context.Context, t target) (float64, error) {
				return throughput(ctx, t, load{publishers: 10, subscribers: 1, messages: n(60_000), qos: 1})
			}},
		{name: "the same on three nodes", want: "1s ≥ 0.6, always ≥ 0.25", peers: []string{"mosquitto", "3 × 1s", "3 × always"}, format: "%.0f",
			work: func(ctx context.Context, t target) (float64, error) {
				return throughput(ctx, t, load{publishers: 10, subscribers: 1, messages: n(60_000), qos: 1})
			}},
	}
	for _, percentile := range []int{50, 99} {
		move := func(ctx context.Context, t target) (float64, error) { return takeover(ctx, t, n(1000), percentile) }
		rows = append(rows,
			row{name: fmt.Sprintf("takeover on one node, p%d, ms", percentile), want: "-", less: true,
				peers: []string{"mosquitto", "1s", "always"}, format: "%.2f", work: move},
			row{name: fmt.Sprintf("takeover from node to node, p%d, ms", percentile), want: "-", less: true,
				peers: []string{"mosquitto", "3 × 1s", "3 × always"}, format: "%.2f", work: move})
	}
	if idle > 0 {
		rows = append(rows, row{name: fmt.Sprintf("memory per idle connection, %d of them, bytes", idle), want: "≤ 8192 bytes", less: true,
			peers: []string{"mosquitto", "1s"}, format: "%.0f",
			work: func(ctx context.Context, t target) (float64, error) { return idleMemory(ctx, t, idle) }})
	}
	if state > 0 {
		rows = append(rows, row{name: fmt.Sprintf("ready after kill -9 with %d sessions and as many retained, s", state), want: "< 10 s", less: true,
			peers: []string{"1s"}, format: "%.1f",
			work: func(ctx context.Context, t target) (float64, error) { return restart(ctx, t, state) }})
	}
	out := tabwriter.NewWriter(os.Stdout, 2, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "work\tmosquitto\tbroker 1s\tratio\tbroker always\tratio\tto reach\t")
	for _, r := range rows {
		if !strings.Contains(r.name, only) {
			continue
		}
		results, err := measure(ctx, peers, r, rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		ours := map[string]string{"1s": "1s", "always": "always"}
		for _, name := range r.peers {
			if of, is := strings.CutPrefix(name, "3 × "); is {
				ours[of] = name
			}
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.name,
			cell(r, results, "mosquitto"), cell(r, results, ours["1s"]), ratio(results, ours["1s"]), cell(r, results, ours["always"]), ratio(results, ours["always"]), r.want)
	}
	return out.Flush()
}

// measure runs a row's peers in alternation and gives the median of each.
func measure(ctx context.Context, peers map[string]peer, r row, rounds int) (map[string]float64, error) {
	all := make(map[string][]float64)
	for range rounds {
		for _, name := range r.peers {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			t, err := peers[name].start(ctx)
			if err != nil {
				return nil, err
			}
			limit, cancel := context.WithTimeout(ctx, 5*time.Minute)
			v, err := r.work(limit, t)
			cancel()
			t.stop()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all[name] = append(all[name], v)
		}
	}
	medians := make(map[string]float64)
	for name, values := range all {
		slices.Sort(values)
		medians[name] = values[len(values)/2]
	}
	return medians, nil
}

func cell(r row, results map[string]float64, name string) string {
	if v, ok := results[name]; ok {
		return fmt.Sprintf(r.format, v)
	}
	return "-"
}

func ratio(results map[string]float64, name string) string {
	v, ok := results[name]
	if !ok || results["mosquitto"] == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v/results["mosquitto"])
}
