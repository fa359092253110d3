package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
)

// engine is the NATS server in this process and two connections to it, so that
// a large read does not hold up an acknowledgement.
type engine struct {
	server      *server.Server
	write, read *nats.Conn
	js          jetstream.JetStream // over read
	deadline    time.Duration

	writeBack, readBack listeners // told when the connection was lost and is back
}

// listeners are functions that are called when something happens.
type listeners struct {
	mu sync.Mutex
	fs map[*func()]struct{}
}

// add adds one, until cancel is called.
func (l *listeners) add(f func()) (cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fs == nil {
		l.fs = make(map[*func()]struct{})
	}
	l.fs[&f] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.fs, &f)
	}
}

func (l *listeners) call() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for f := range l.fs {
		(*f)()
	}
}

// account is where everything of ours is in the engine.
const account = "MQTT"

// startEngine starts a server that only this process can reach: it has no
// listener, and its one user has a key made up anew at each start.
func startEngine(o *Options) (*engine, error) {
	user, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("make a key for the engine: %w", err)
	}
	public, err := user.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("make a key for the engine: %w", err)
	}
	so := &server.Options{}
	err = so.ProcessConfigString(fmt.Sprintf(`
		accounts {
			%s { jetstream: enabled, users: [{nkey: %s}] }
			SYS {}
		}
		system_account: SYS`, account, public))
	if err != nil {
		return nil, fmt.Errorf("configure the engine: %w", err)
	}
	so.ServerName = o.Node
	so.DontListen = true
	so.NoSigs = true
	so.DisableJetStreamBanner = true
	so.JetStream = true
	so.StoreDir = filepath.Join(o.Dir, "engine")
	so.JetStreamMaxStore = 1 << 60 // what bounds us is the disk and the streams' own bounds
	so.JetStreamMaxMemory = 256 << 20
	so.SyncAlways = o.Durability == Always
	so.SyncInterval = time.Second
	// A subject that is longer than the control line cuts the connection. Escaped
	// topics may be three times as long as they are, and requests name them.
	so.MaxControlLine = int32(4*o.MaxTopic + 4<<10)
	so.MaxPayload = int32(o.maxEngineMessage())

	srv, err := server.NewServer(so)
	if err != nil {
		return nil, fmt.Errorf("configure the engine: %w", err)
	}
	l := &engineLog{log: o.Log}
	srv.SetLoggerV2(l, false, false, false)
	srv.Start()
	e := &engine{server: srv, deadline: o.Deadline}
	switch why := l.fatal(); {
	case why != "":
		err = errors.New(why)
	case !srv.ReadyForConnections(o.Deadline) || !srv.JetStreamEnabled():
		err = errors.New("the engine does not start")
	}
	if err != nil {
		e.stop()
		return nil, err
	}
	connect := func(name string, back *listeners) (*nats.Conn, error) {
		return nats.Connect("",
			nats.Name(name),
			nats.InProcessServer(srv),
			nats.Nkey(public, user.Sign),
			nats.MaxReconnects(-1),
			nats.ReconnectWait(10*time.Millisecond),
			nats.ReconnectJitter(0, 0),
			nats.ReconnectBufSize(-1), // what is not sent is known to be
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
				o.Log.Warn("trouble with the store's engine", "conn", name, "err", err)
			}),
			nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
				if err != nil {
					o.Log.Warn("the store's engine hung up", "conn", name, "err", err)
				}
			}),
			nats.ReconnectHandler(func(*nats.Conn) { back.call() }),
		)
	}
	if e.write, err = connect("write", &e.writeBack); err == nil {
		e.read, err = connect("read", &e.readBack)
	}
	if err == nil {
		e.js, err = jetstream.New(e.read, jetstream.WithDefaultTimeout(o.Deadline))
	}
	if err != nil {
		e.stop()
		return nil, fmt.Errorf("connect to the engine: %w", err)
	}
	return e, nil
}

func (e *engine) stop() {
	for _, c := range []*nats.Conn{e.write, e.read} {
		if c != nil {
			c.Close()
		}
	}
	e.server.Shutdown()
	e.server.WaitForShutdown()
}

// request asks the engine, over the connection for reading. What is asked can be
// asked again: a request is lost when the connection breaks.
func (e *engine) request(ctx context.Context, subject string, body []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, e.deadline)
	defer cancel()
	for {
		try, cancel := context.WithTimeout(ctx, e.deadline/3)
		forget := e.readBack.add(cancel)
		m, err := e.read.RequestWithContext(try, subject, body)
		forget()
		cancel()
		if err == nil {
			return m, nil
		}
		if ctx.Err() != nil || e.read.IsClosed() {
			return nil, unavailable(ctx, err)
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
	}
}

// state asks what a stream has.
func (e *engine) state(ctx context.Context, stream string) (server.StreamState, error) {
	m, err := e.request(ctx, "$JS.API.STREAM.INFO."+stream, nil)
	if err != nil {
		return server.StreamState{}, err
	}
	var info server.JSApiStreamInfoResponse
	if err := json.Unmarshal(m.Data, &info); err != nil {
		return server.StreamState{}, fmt.Errorf("state of stream %s: %w", stream, err)
	}
	if info.Error != nil {
		return server.StreamState{}, fmt.Errorf("%w: state of stream %s: %s", ErrUnavailable, stream, info.Error.Description)
	}
	return info.State, nil
}

// unavailable is the error of a request that was not answered.
func unavailable(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// engineLog passes the server's lines on. Its notices are our debug detail.
type engineLog struct {
	log *slog.Logger

	mu   sync.Mutex
	died string
}

func (l *engineLog) line(level slog.Level, format string, v []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "store engine", "line", fmt.Sprintf(format, v...))
	}
}

func (l *engineLog) Noticef(format string, v ...any) { l.line(slog.LevelDebug, format, v) }
func (l *engineLog) Warnf(format string, v ...any)   { l.line(slog.LevelWarn, format, v) }
func (l *engineLog) Errorf(format string, v ...any)  { l.line(slog.LevelError, format, v) }
func (l *engineLog) Debugf(format string, v ...any)  { l.line(slog.LevelDebug, format, v) }
func (l *engineLog) Tracef(format string, v ...any)  { l.line(slog.LevelDebug, format, v) }

// Fatalf keeps why the server could not start; it does not end the process.
func (l *engineLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.died = fmt.Sprintf(format, v...)
}

func (l *engineLog) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.died
}
