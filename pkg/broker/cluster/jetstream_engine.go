package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
)

// engine is the NATS server in this process and connections to it: two, so that
// a large read does not hold up an acknowledgement, and in a cluster two more.
type engine struct {
	server      *server.Server
	write, read *nats.Conn
	talk, cast  *nats.Conn                 // for peers
	js          jetstream.JetStream        // over read
	deadline    time.Duration              // for an answer
	patient     func(time.Time) bool       // whether what has begun then may take longer than that
	system      func() (*nats.Conn, error) // a new connection that may change the cluster

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

// The engine's accounts. Heartbeats have one of their own, and with that a
// connection between nodes of their own: bulk does not hold them up.
const (
	account       = "MQTT" // everything that is stored, and what goes between nodes unstored
	peerAccount   = "PEERS"
	systemAccount = "SYS"
)

const engineDir = "engine" // in the store's folder

// engineUsers are the keys of this process's users, made up anew at each start.
type engineUsers map[string]nkeys.KeyPair // by account

func newEngineUsers() (engineUsers, string, error) {
	users := make(engineUsers)
	config := "accounts {\n"
	for _, a := range []string{account, peerAccount, systemAccount} {
		user, err := nkeys.CreateUser()
		if err != nil {
			return nil, "", fmt.Errorf("make a key for the engine: %w", err)
		}
		public, err := user.PublicKey()
		if err != nil {
			return nil, "", fmt.Errorf("make a key for the engine: %w", err)
		}
		users[a] = user
		with := ""
		if a == account {
			with = "jetstream: enabled, "
		}
		config += fmt.Sprintf("%s { %susers: [{nkey: %s}] }\n", a, with, public)
	}
	return users, config + "}\nsystem_account: " + systemAccount, nil
}

// startEngine starts a server. A single node's can be reached by this process
// only: it has no listener, and its users' keys are known to nobody. In a cluster
// that would end the connections of nodes, too, so it listens on a loopback
// address, where nobody has a key either.
func startEngine(o *Options) (*engine, error) {
	users, config, err := newEngineUsers()
	if err != nil {
		return nil, err
	}
	so := &server.Options{}
	if err := so.ProcessConfigString(config); err != nil {
		return nil, fmt.Errorf("configure the engine: %w", err)
	}
	so.ServerName = o.Node
	so.DontListen = true
	so.NoSigs = true
	so.DisableJetStreamBanner = true
	so.JetStream = true
	so.StoreDir = filepath.Join(o.Dir, engineDir)
	so.JetStreamMaxStore = 1 << 60 // what bounds us is the disk and the streams' own bounds
	so.JetStreamMaxMemory = 256 << 20
	so.SyncAlways = o.Durability == Always
	so.SyncInterval = time.Second
	// A subject that is longer than the control line cuts the connection. Escaped
	// topics may be three times as long as they are, and requests name them.
	so.MaxControlLine = int32(4*o.MaxTopic + 4<<10)
	so.MaxPayload = int32(o.maxEngineMessage())
	if o.Cluster != nil {
		if err := o.Cluster.configure(so); err != nil {
			return nil, err
		}
	}

	srv, err := server.NewServer(so)
	if err != nil {
		return nil, fmt.Errorf("configure the engine: %w", err)
	}
	l := &engineLog{log: o.Log, began: time.Now()}
	srv.SetLoggerV2(l, false, false, false)
	srv.Start()
	e := &engine{server: srv, deadline: o.Deadline, patient: func(time.Time) bool { return false }}
	switch why := l.fatal(); {
	case why != "":
		err = errors.New(why)
	case !srv.ReadyForConnections(o.Deadline) || !srv.JetStreamEnabled():
		err = errors.New("the engine does not start")
	default:
		err = e.connect(o, users)
	}
	if err != nil {
		e.stop()
		return nil, err
	}
	return e, nil
}

// A server that is busy with its start, and with the routes of others, may let
// go of a connection before it is made: on a loaded machine, after seconds.
const (
	connectTimeout  = 5 * time.Second
	connectAttempts = 4
)

func connectPatiently(options ...nats.Option) (c *nats.Conn, err error) {
	for range connectAttempts {
		if c, err = nats.Connect("", options...); err == nil {
			return c, nil
		}
		time.Sleep(5 * retryPause)
	}
	return nil, err
}

// connect makes the connections.
func (e *engine) connect(o *Options, users engineUsers) error {
	connect := func(name, account string, back *listeners, more ...nats.Option) (*nats.Conn, error) {
		public, err := users[account].PublicKey()
		if err != nil {
			return nil, err
		}
		c, err := connectPatiently(append([]nats.Option{
			nats.Name(name),
			nats.Timeout(connectTimeout),
			nats.InProcessServer(e.server),
			nats.Nkey(public, users[account].Sign),
			nats.MaxReconnects(-1),
			nats.ReconnectWait(10 * time.Millisecond),
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
		}, more...)...)
		if err != nil {
			return nil, fmt.Errorf("connect to the engine: %w", err)
		}
		return c, nil
	}
	e.system = func() (*nats.Conn, error) { return connect("system", systemAccount, &listeners{}) }
	var err error
	if e.write, err = connect("write", account, &e.writeBack); err != nil {
		return err
	}
	if e.read, err = connect("read", account, &e.readBack); err != nil {
		return err
	}
	if o.Cluster != nil {
		if e.talk, err = connect("talk", peerAccount, &listeners{}); err != nil {
			return err
		}
		if e.cast, err = connect("cast", account, &listeners{}, nats.NoEcho()); err != nil {
			return err
		}
	}
	if e.js, err = jetstream.New(e.read, jetstream.WithDefaultTimeout(o.Deadline)); err != nil {
		return fmt.Errorf("connect to the engine: %w", err)
	}
	return nil
}

func (e *engine) stop() {
	for _, c := range []*nats.Conn{e.write, e.read, e.talk, e.cast} {
		if c != nil {
			c.Close()
		}
	}
	e.server.Shutdown()
	e.server.WaitForShutdown()
}

// request asks the engine, over the connection for reading. What is asked can be
// asked again: a request is lost when the connection breaks, or with a node.
func (e *engine) request(ctx context.Context, subject string, body []byte) (*nats.Msg, error) {
	begun := time.Now()
	for wait := min(e.deadline/6, silencePause); ; wait = min(2*wait, e.deadline) {
		m, err := e.requestOnce(ctx, wait, subject, body)
		if err == nil {
			return m, nil
		}
		if e.read.IsClosed() || ctx.Err() != nil || !e.mayTakeLonger(begun) {
			return nil, unavailable(ctx, err)
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
	}
}

// mayTakeLonger says whether to go on with what has begun then.
func (e *engine) mayTakeLonger(begun time.Time) bool {
	return time.Since(begun) < e.deadline || e.patient(begun)
}

// requestOnce waits so long for an answer, or until the connection breaks.
func (e *engine) requestOnce(ctx context.Context, wait time.Duration, subject string, body []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer e.readBack.add(cancel)()
	return e.read.RequestWithContext(ctx, subject, body)
}

// notReady says that an error of the engine is one that passes: another node may
// answer the same question soon, or this one.
func notReady(e *server.ApiError) bool {
	switch server.ErrorIdentifier(e.ErrCode) {
	case server.JSClusterNotAvailErr, server.JSClusterNotLeaderErr, server.JSClusterNotActiveErr:
		return true
	}
	return false
}

// call is request for a subject of the engine's API that answers with a T.
func call[T any, A interface {
	*T
	ToError() error
}](ctx context.Context, e *engine, subject string, body []byte) (A, error) {
	begun := time.Now()
	for {
		m, err := e.request(ctx, subject, body)
		if err != nil {
			return nil, err
		}
		answer := A(new(T)) // a new one: what one answer leaves out, another has said
		if err := json.Unmarshal(m.Data, answer); err != nil {
			return nil, fmt.Errorf("the engine's answer to %s: %w", subject, err)
		}
		var failed *server.ApiError
		switch errors.As(answer.ToError(), &failed); {
		case failed == nil:
			return answer, nil
		case failed.Code == 404:
			return nil, fmt.Errorf("%w: %s", ErrNotFound, failed.Description)
		case !notReady(failed) || ctx.Err() != nil || !e.mayTakeLonger(begun):
			return nil, fmt.Errorf("%w: %s: %s", ErrUnavailable, subject, failed.Description)
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
	}
}

// state asks what a stream has.
func (e *engine) state(ctx context.Context, stream string) (server.StreamState, error) {
	info, err := e.info(ctx, stream)
	if err != nil {
		return server.StreamState{}, err
	}
	return info.State, nil
}

func (e *engine) info(ctx context.Context, stream string) (*server.StreamInfo, error) {
	answer, err := call[server.JSApiStreamInfoResponse](ctx, e, "$JS.API.STREAM.INFO."+stream, nil)
	if errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err == nil && answer.StreamInfo == nil {
		err = fmt.Errorf("%w: there is no state of stream %s", ErrUnavailable, stream)
	}
	if err != nil {
		return nil, err
	}
	return answer.StreamInfo, nil
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
	log   *slog.Logger
	began time.Time

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

// Errorf passes on what is wrong with this node. That others can't be reached is
// life in a cluster; while all start, nobody has to know.
func (l *engineLog) Errorf(format string, v ...any) {
	level := slog.LevelError
	if strings.Contains(format, "connect to route") || strings.Contains(format, "Error flushing") {
		level = slog.LevelWarn
		if time.Since(l.began) < PresumedLost {
			level = slog.LevelDebug
		}
	}
	l.line(level, format, v)
}

func (l *engineLog) Debugf(format string, v ...any) { l.line(slog.LevelDebug, format, v) }
func (l *engineLog) Tracef(format string, v ...any) { l.line(slog.LevelDebug, format, v) }

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
