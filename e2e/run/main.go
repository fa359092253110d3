// Command run is `make run`: mqttlb on this machine, in front of a cluster of our
// own broker or of three mosquitto, to be tried by hand.
//
// It makes sure that all its ports are free and its packages there before it
// starts anything, tries out itself what it then tells the user to try, waits
// for Ctrl-C, and takes everything down again. Exit codes: 0 after Ctrl-C,
// 1 when something fails, 2 for wrong flags, 3 when this machine lacks
// something (a free port, a package and the right to install it).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/mqttlb/mqttlb/e2e/rig"
)

func main() {
	o, err := parseFlags(os.Args[1:])
	var help helpError
	if errors.As(err, &help) {
		fmt.Println(help)
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	// A second signal is not caught: it ends this program at once, and the
	// children with it.
	ctx, release := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, release)

	err = run(ctx, o, os.Stdout)
	var busy busyPorts
	var needRoot *rig.NeedRootError
	switch {
	case err == nil:
	case errors.As(err, &busy), errors.As(err, &needRoot):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	default:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run returns nil when it was ended by ctx and everything ended well.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	if err := checkPorts(o.ports()); err != nil {
		return err
	}
	var started children
	defer func() {
		stopErr := started.stop()
		if ctx.Err() == nil {
			err = errors.Join(err, stopErr)
			return
		}
		// What ctx has cut short is no failure.
		if err = stopErr; err == nil {
			fmt.Fprintln(out, "\nAll stopped.")
		}
	}()

	if err := rig.Install(ctx, o.packages()...); err != nil {
		return err
	}
	fmt.Fprintln(out, "building mqttlb")
	binary, err := rig.Build()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	if o.cert == "" {
		fmt.Fprintln(out, "making throwaway certificates")
		if err := makeCertificates(&o); err != nil {
			return err
		}
	}

	if err := startBrokers(ctx, o, &started, out); err != nil {
		return err
	}
	fmt.Fprintln(out, "starting mqttlb")
	config := filepath.Join(o.dir, "mqttlb.yaml")
	if err := os.WriteFile(config, []byte(o.config()), 0o644); err != nil {
		return err
	}
	lb, err := startMqttlb(ctx, binary, config, o)
	if err != nil {
		return err
	}
	started.add(lb)

	try, err := newTry(o)
	if err != nil {
		return err
	}
	if err := try.check(ctx); err != nil {
		return fmt.Errorf("started, but does not work: %w\nthe last lines of mqttlb's log:\n%s", err, lb.Log().Tail(20))
	}
	fmt.Fprint(out, o.welcome(try))

	for {
		select {
		case <-ctx.Done():
			return nil
		case news := <-started.news:
			fmt.Fprintln(out, news)
		case p := <-started.ended:
			return fmt.Errorf("%s has ended by itself (%s); the last lines of its log:\n%s", p.Name, p.HowItEnded(), p.Log().Tail(20))
		}
	}
}

// startBrokers starts what stands behind mqttlb.
func startBrokers(ctx context.Context, o options, started *children, out io.Writer) error {
	if o.kind == mosquitto {
		return startStar(ctx, o, started, out)
	}
	return startCluster(ctx, o, started, out)
}

func startStar(ctx context.Context, o options, started *children, out io.Writer) error {
	fmt.Fprintln(out, "starting three mosquitto")
	var each []rig.MosquittoOptions
	for i, name := range o.brokerNames() {
		each = append(each, rig.MosquittoOptions{Dir: o.dir, Name: name, Port: o.brokerPort + i})
	}
	star, err := rig.StartStar(ctx, each...)
	if err != nil {
		return err
	}
	for _, b := range star.Brokers {
		started.add(b.Process)
	}
	return nil
}

func startMqttlb(ctx context.Context, binary, config string, o options) (*rig.Process, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return rig.StartMqttlb(ctx, rig.MqttlbOptions{
		Binary:  binary,
		Config:  config,
		Admin:   rig.Local(o.adminPort),
		LogFile: filepath.Join(o.dir, "mqttlb.log"),
	})
}

// makeCertificates makes an authority and a certificate for this machine's
// own names, and puts them into o.
func makeCertificates(o *options) error {
	dir := filepath.Join(o.dir, "certs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	ca, err := rig.NewCA("mqttlb make run")
	if err != nil {
		return err
	}
	server, err := ca.Issue(rig.Request{Name: "localhost", Hosts: []string{"localhost", "127.0.0.1", "::1"}})
	if err != nil {
		return err
	}
	if o.cert, o.key, err = server.Write(dir, "server"); err != nil {
		return err
	}
	o.ca, err = ca.WriteCert(dir, "ca")
	return err
}

// children are the processes that run, in the order of their start.
type children struct {
	all   []*rig.Process
	ended chan *rig.Process // gets the first that ends
	news  chan string       // lines of a child that the user should see; nil: none

	watchers sync.WaitGroup
}

func (c *children) add(p *rig.Process) {
	if c.ended == nil {
		c.ended = make(chan *rig.Process, 1)
	}
	c.all = append(c.all, p)
	c.watchers.Go(func() {
		<-p.Done()
		select {
		case c.ended <- p:
		default:
		}
	})
}

// stop ends them, the last one started first.
func (c *children) stop() error {
	var errs []error
	for i := len(c.all) - 1; i >= 0; i-- {
		errs = append(errs, c.all[i].Stop())
	}
	c.watchers.Wait()
	return errors.Join(errs...)
}
