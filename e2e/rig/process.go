package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Command says what to start. Name and Path are needed.
type Command struct {
	Name    string // for people: "mosquitto-1"
	Path    string // an absolute path, or a command that PATH or sbin has
	Args    []string
	Env     []string // added to this process's own
	Dir     string
	LogFile string        // where the output goes as well, written anew; empty: nowhere
	Grace   time.Duration // how long Stop waits before it kills; default 10 s
}

// Process is a running child with its output captured.
type Process struct {
	Name  string
	cmd   *exec.Cmd
	log   *Log
	grace time.Duration
	done  chan struct{}
	err   error // of the end; read it after done
}

// Start starts a child in a process group of its own. It dies by SIGKILL
// when this process dies, whatever this one dies of, and nothing of its group
// outlives it.
func Start(c Command) (*Process, error) {
	path, err := findCommand(c.Path)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	p := &Process{Name: c.Name, log: newLog(nil), grace: c.Grace, done: make(chan struct{})}
	if p.grace == 0 {
		p.grace = 10 * time.Second
	}
	var file *os.File
	if c.LogFile != "" {
		if file, err = os.Create(c.LogFile); err != nil {
			return nil, fmt.Errorf("start %s: %w", c.Name, err)
		}
		p.log.tee = file
	}
	p.cmd = exec.Command(path, c.Args...)
	p.cmd.Dir = c.Dir
	p.cmd.Env = append(os.Environ(), c.Env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.WaitDelay = 2 * time.Second // for a grandchild that left the group and holds the pipe
	// Pdeathsig comes when the thread that forked ends. Go ends a thread only
	// when a goroutine ends that is still locked to it, and none here is.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		if file != nil {
			file.Close()
		}
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	go p.wait(file)
	return p, nil
}

// wait sees the child's end. It sweeps the group before it reaps the child,
// while the group's number can't be anyone else's.
func (p *Process) wait(file *os.File) {
	for {
		err := unix.Waitid(unix.P_PID, p.PID(), nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	syscall.Kill(-p.PID(), syscall.SIGKILL)
	p.err = p.cmd.Wait()
	p.log.end()
	if file != nil {
		file.Close()
	}
	close(p.done)
}

// PID is the child's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log is what the child has written, standard output and error together.
func (p *Process) Log() *Log { return p.log }

// Done is closed when the child has ended and its output is complete.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how the child ended, as [exec.Cmd.Wait] tells it; nil for exit code 0
// and while it runs.
func (p *Process) Err() error {
	if p.Running() {
		return nil
	}
	return p.err
}

// ExitCode waits for the end and gives the exit code, -1 after a signal.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// HowItEnded waits for the end and says how it came: "exit status 1",
// "signal: killed".
func (p *Process) HowItEnded() string {
	<-p.done
	return p.cmd.ProcessState.String()
}

// Signal sends a signal to the child alone. One that has ended is no error.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Stop asks the child to end by SIGTERM, kills it when the grace is over, and
// returns when it is gone. An error says that it had to be killed. It is safe
// to repeat.
func (p *Process) Stop() error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	grace := time.NewTimer(p.grace)
	defer grace.Stop()
	select {
	case <-p.done:
		return nil
	case <-grace.C:
		p.Kill()
		return fmt.Errorf("stop %s: still there %v after SIGTERM, killed; its last lines are\n%s", p.Name, p.grace, p.log.Tail(20))
	}
}

// Kill ends the child by SIGKILL, as a crash would, and returns when it is gone.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Running tells whether the child has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}
