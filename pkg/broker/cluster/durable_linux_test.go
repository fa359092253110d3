package cluster

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// This test binary is its own helper: with helperEnv it writes to the store in
// helperDir and says on stdout what is done.
const (
	helperEnv = "MQTTLB_CLUSTER_HELPER"
	helperDir = "MQTTLB_CLUSTER_DIR"
)

func init() { helper = runHelper }

func runHelper() (code int, is bool) {
	what := os.Getenv(helperEnv)
	if what == "" {
		return 0, false
	}
	o := Options{
		Dir: os.Getenv(helperDir), Durability: Always,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if node, ok := strings.CutPrefix(what, "node "); ok {
		return runNode(o, node), true
	}
	s, err := OpenJetStream(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	switch what {
	case "marks":
		writeMarks(s)
	case "until killed":
		writeForEver(s)
	}
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

func helperCommand(t *testing.T, dir, what string, before ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := append(before, exe)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), helperEnv+"="+what, helperDir+"="+dir)
	cmd.Stderr = t.Output()
	return cmd
}

// What the helper writes for strace to see: first one after another, then records
// at once, which go as a batch.
const (
	marks      = 5 // of each kind
	batchMarks = 100
)

func writeMarks(s *JetStream) {
	var group sync.WaitGroup
	number := 0
	// say writes "done <mark>;" to stdout from within done, in one system call.
	say := func(kind string, write func(mark string, done func(error))) {
		number++
		mark := fmt.Sprintf("%s-%d;", kind, number)
		group.Add(1)
		write(mark, func(err error) {
			if err != nil {
				mark = err.Error()
			}
			_, _ = os.Stdout.WriteString("done " + mark + "\n")
			group.Done()
		})
	}
	put := func(mark string, done func(error)) {
		s.Records(Sessions).Put(mark, []byte(mark), Any, func(_ Revision, err error) { done(err) })
	}
	for range marks {
		for _, write := range []func(mark string, done func(error)){
			func(mark string, done func(error)) {
				s.Append(&Message{Topic: "t", Payload: []byte(mark), QoS: 1}, func(_ Pos, err error) { done(err) })
			},
			func(mark string, done func(error)) {
				s.Append(&Message{Topic: "t", Payload: []byte(mark), QoS: 2, DedupID: "d" + mark}, func(_ Pos, err error) { done(err) })
			},
			func(mark string, done func(error)) {
				s.SetRetained(&Message{Topic: "t", Payload: []byte(mark)}, func(_ Revision, err error) { done(err) })
			},
			put,
		} {
			say("mark", write)
			group.Wait()
		}
	}
	for range batchMarks {
		say("batch", put)
	}
	group.Wait()
}

// straceCalls reads what strace writes: calls as they begin and as they end.
type straceCalls struct {
	in *bufio.Scanner
	// running are, by thread, calls that have begun.
	running map[string]*straceCall
}

type straceCall struct {
	name, file, args string
	covers           []string // of a sync: what was written when it began
}

var (
	straceLine    = regexp.MustCompile(`^(\d+) +(.*)$`)
	straceBegin   = regexp.MustCompile(`^(\w+)\(\d+<([^>]*)>`)
	straceResumed = regexp.MustCompile(`^<\.\.\. \w+ resumed>`)
	straceResult  = regexp.MustCompile(`\) += (-?\d+)[^=]*$`)
)

// each calls begin and end; end not for calls that fail.
func (s *straceCalls) each(begin, end func(*straceCall)) error {
	for s.in.Scan() {
		line := straceLine.FindStringSubmatch(s.in.Text())
		if line == nil {
			return fmt.Errorf("strace says %q", s.in.Text())
		}
		thread, what := line[1], line[2]
		if m := straceBegin.FindStringSubmatch(what); m != nil {
			s.running[thread] = &straceCall{name: m[1], file: m[2], args: what}
			begin(s.running[thread])
		} else if !straceResumed.MatchString(what) {
			continue // a signal, or the end of a thread
		}
		if strings.HasSuffix(what, "<unfinished ...>") {
			continue
		}
		c := s.running[thread]
		delete(s.running, thread)
		if m := straceResult.FindStringSubmatch(what); c != nil && m != nil && !strings.HasPrefix(m[1], "-") {
			end(c)
		}
	}
	return s.in.Err()
}

// Durability "always" means that the disk has it before anybody is told: between
// a write and its done, a sync begins and ends.
func TestASyncComesBetweenAWriteAndItsDone(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatalf("this test needs strace (make setup installs it): %v", err)
	}
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := helperCommand(t, t.TempDir(), "marks", strace, "-f", "-y", "-s", "10000", "-o", trace,
		"-e", "trace=pwrite64,pwritev,write,fsync,fdatasync", "--")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(out, []byte("done ")); n != 4*marks+batchMarks {
		t.Fatalf("%d writes are done:\n%s", n, out)
	}
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	mark := regexp.MustCompile(`(?:mark|batch)-[0-9-]+;`)
	done := regexp.MustCompile(`done ([^;]*;)`)
	unsynced := map[string][]string{} // by file, marks that are written there
	synced := map[string]bool{}
	checked := 0
	calls := straceCalls{bufio.NewScanner(f), map[string]*straceCall{}}
	calls.in.Buffer(nil, 10<<20)
	err = calls.each(func(c *straceCall) {
		if m := done.FindStringSubmatch(c.args); m != nil && c.name == "write" {
			checked++
			if !synced[m[1]] {
				t.Errorf("%s is done and not synced", m[1])
			}
		}
		if c.name == "fsync" || c.name == "fdatasync" {
			c.covers = slices.Clone(unsynced[c.file])
		}
	}, func(c *straceCall) {
		switch {
		// The engine stages a batch in files of its own first.
		case !strings.HasSuffix(c.file, ".blk") || strings.Contains(c.file, "/batches/"):
		case c.name == "fsync" || c.name == "fdatasync":
			for _, m := range c.covers {
				synced[m] = true
			}
		default:
			unsynced[c.file] = append(unsynced[c.file], mark.FindAllString(c.args, -1)...)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked != 4*marks+batchMarks {
		t.Errorf("strace saw %d of %d writes done", checked, 4*marks+batchMarks)
	}
}

// writeForEver writes and says what is done: kind, name and number.
func writeForEver(s *JetStream) {
	run := os.Getpid()
	tell := func(kind string, name any, i int) func(error) {
		return func(err error) {
			if err == nil {
				fmt.Println(kind, name, i)
			}
		}
	}
	for w := range 4 {
		go func() {
			topic := fmt.Sprint(run, "/", w)
			for i := 0; ; i++ {
				m := message(topic, i)
				if i%100 == 0 {
					m.DedupID = fmt.Sprint(topic, i)
				}
				done := tell("log", topic, i)
				s.Append(m, func(_ Pos, err error) { done(err) })
			}
		}()
	}
	for i := 0; ; i++ {
		record, retained := tell("record", i%50, i), tell("retained", i%50, i)
		s.Records(Sessions).Put(fmt.Sprint(i%50), fmt.Append(nil, i), Any, func(_ Revision, err error) { record(err) })
		s.SetRetained(message(fmt.Sprint(i%50), i), func(_ Revision, err error) { retained(err) })
	}
}

// A process that is killed has lost nothing that it has acknowledged, and what
// it had not is there from the beginning up to somewhere.
func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	stored := map[string]int{} // by topic, over all rounds
	for round := range 3 {
		cmd := helperCommand(t, dir, "until killed")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		acknowledged := map[string]map[string]int{"log": {}, "record": {}, "retained": {}}
		lines := bufio.NewScanner(out)
		n, byKind, killed := 0, map[string]int{}, false
		for lines.Scan() { // to the end: what is in the pipe was acknowledged, too
			var kind, name string
			var i int
			if _, err := fmt.Sscan(lines.Text(), &kind, &name, &i); err != nil {
				break // cut off by the kill
			}
			if kind == "log" {
				if want := acknowledged[kind][name]; i != want {
					t.Fatalf("%s: %d acknowledged where %d was due", name, i, want)
				}
				i++
			}
			acknowledged[kind][name] = i
			n++
			byKind[kind]++
			if !killed && n >= 4000 && byKind["record"] >= 100 && byKind["retained"] >= 100 {
				killed = true
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait()
		if !killed {
			t.Fatalf("the helper ended by itself, after %d writes", n)
		}
		checkKilled(t, dir, acknowledged, stored)
		t.Logf("round %d: %d writes acknowledged, all are there", round, n)
	}
}

func checkKilled(t *testing.T, dir string, acknowledged map[string]map[string]int, stored map[string]int) {
	t.Helper()
	s := openJetStream(t, Options{Dir: dir})
	defer s.Close()
	log := map[string]int{}
	for _, got := range drain(t, s, 0, 0) {
		if string(got.m.Payload) != fmt.Sprint(log[got.m.Topic]) {
			t.Fatalf("%s: message %s where %d was due", got.m.Topic, got.m.Payload, log[got.m.Topic])
		}
		log[got.m.Topic]++
	}
	for topic, n := range acknowledged["log"] {
		if log[topic] < n {
			t.Errorf("%s: %d messages are there, %d were acknowledged", topic, log[topic], n)
		}
		stored[topic] = log[topic]
	}
	for topic, n := range stored {
		if log[topic] != n {
			t.Errorf("%s: %d messages, of an earlier round's %d", topic, log[topic], n)
		}
	}
	records, retained := records0(t, s.Records(Sessions)), retained0(t, s)
	for name, n := range acknowledged["record"] {
		if i, err := strconv.Atoi(records[name]); err != nil || i < n {
			t.Errorf("record %s: %q, acknowledged was %d", name, records[name], n)
		}
	}
	for name, n := range acknowledged["retained"] {
		if m := retained[name]; m == nil {
			t.Errorf("retained message %s is not there", name)
		} else if i, err := strconv.Atoi(string(m.Payload)); err != nil || i < n {
			t.Errorf("retained message %s: %q, acknowledged was %d", name, m.Payload, n)
		}
	}
}
