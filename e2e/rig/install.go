package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// NeedRootError says that packages are missing and that only root may install
// them. Its text carries the command to type.
type NeedRootError struct {
	Packages []string
}

func (e *NeedRootError) Error() string {
	s := fmt.Sprintf("these Debian packages are missing: %s\ninstall them with\n\n    %s\n",
		strings.Join(e.Packages, " "), e.Command())
	if units := services(e.Packages); len(units) > 0 {
		s += fmt.Sprintf("\nDebian starts their services when they are installed; to free the ports again:\n\n    sudo systemctl disable --now %s\n",
			strings.Join(units, " "))
	}
	return s + "\nand try again. Run as root, this command installs them itself and keeps their services from starting."
}

// Command is the line to type.
func (e *NeedRootError) Command() string {
	return "sudo apt-get install -y " + strings.Join(e.Packages, " ")
}

// services are the packages that bring a service of the same name.
func services(packages []string) []string {
	var units []string
	for _, p := range packages {
		if p == "mosquitto" || p == "rabbitmq-server" {
			units = append(units, p)
		}
	}
	return units
}

// The packages that `make run` needs, and those that the tests need.
var (
	RunPackages  = []string{"mosquitto", "mosquitto-clients"}
	TestPackages = []string{"mosquitto", "mosquitto-clients", "rabbitmq-server", "python3-paho-mqtt", "strace", "iproute2", "nftables"}
)

// Install makes sure that the Debian packages are there; see [Installer].
func Install(ctx context.Context, packages ...string) error {
	return (&Installer{Out: os.Stderr}).Install(ctx, packages...)
}

// Installer installs Debian packages with their services kept from starting.
// The zero value works and says nothing.
type Installer struct {
	Out        io.Writer // progress, and what apt-get says
	PolicyFile string    // default /usr/sbin/policy-rc.d
	LockFile   string    // default /run/mqttlb-install.lock
}

// Install makes sure that the packages are there. When all are, it does
// nothing, and needs neither root nor the network. A caller without root gets
// a [*NeedRootError].
//
// Any number of processes may call it at once: one installs, the others wait
// for it. SIGINT, SIGTERM and SIGHUP end it early with what it has altered
// put back, and with apt-get left to finish a package that it has begun.
func (in *Installer) Install(ctx context.Context, packages ...string) error {
	missing := missingPackages(ctx, packages)
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("install %s: no apt-get here; install by hand what these Debian packages hold, with the commands in PATH", strings.Join(missing, " "))
	}
	if os.Geteuid() != 0 {
		return &NeedRootError{missing}
	}

	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	unlock, err := lockFile(ctx, orDefault(in.LockFile, "/run/mqttlb-install.lock"))
	if err != nil {
		return fmt.Errorf("install %s: %w", strings.Join(missing, " "), err)
	}
	defer unlock()
	missing = missingPackages(ctx, packages) // another process may have been at it
	if len(missing) == 0 {
		return nil
	}
	in.say("installing Debian packages: %s", strings.Join(missing, " "))
	if err := in.install(ctx, missing); err != nil {
		return fmt.Errorf("install %s: %w", strings.Join(missing, " "), err)
	}
	return nil
}

// install runs apt-get with services held back; the install lock is held.
func (in *Installer) install(ctx context.Context, packages []string) (err error) {
	restore, err := holdServices(orDefault(in.PolicyFile, "/usr/sbin/policy-rc.d"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()

	// Old lists may still serve, so a failed update only matters if the
	// installation fails too.
	updateErr := in.aptGet(ctx, "update")
	installErr := in.aptGet(ctx, append([]string{"install", "-y", "--no-install-recommends"}, packages...)...)
	if installErr != nil {
		return errors.Join(updateErr, installErr)
	}
	return nil
}

func (in *Installer) aptGet(ctx context.Context, args ...string) error {
	args = append([]string{"-q", "-o", "DPkg::Lock::Timeout=300"}, args...)
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8")
	var said bytes.Buffer
	cmd.Stdout = &said
	if in.Out != nil {
		cmd.Stdout = io.MultiWriter(&said, in.Out)
	}
	cmd.Stderr = cmd.Stdout
	// A group of its own keeps a terminal's Ctrl-C from dpkg. apt-get takes
	// the interrupt while it fetches, and ignores it while dpkg is at work.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Minute
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, lastLines(said.String(), 15))
	}
	return nil
}

func (in *Installer) say(format string, args ...any) {
	if in.Out != nil {
		fmt.Fprintf(in.Out, format+"\n", args...)
	}
}

// missingPackages are those that dpkg does not have installed, unless the
// command that they are wanted for is there without dpkg.
func missingPackages(ctx context.Context, packages []string) []string {
	var missing []string
	for _, p := range packages {
		out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f=${db:Status-Status}", p).Output()
		if err == nil && string(out) == "installed" {
			continue
		}
		if c, ok := commandOf[p]; ok {
			if _, err := findCommand(c); err == nil {
				continue
			}
		}
		missing = append(missing, p)
	}
	return missing
}

var commandOf = map[string]string{
	"mosquitto":         "mosquitto",
	"mosquitto-clients": "mosquitto_sub",
	"rabbitmq-server":   "rabbitmqctl",
	"gcc":               "gcc",
}

// findCommand looks in PATH and in the sbin folders, which a user's PATH on
// Debian leaves out.
func findCommand(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/sbin"} {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p, nil
		}
	}
	return "", err
}

// lockFile waits for the exclusive lock on path, across processes. The file
// stays; the lock goes with unlock or with the process.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	// flock(2) can't be given up once it waits, so ask again and again.
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("waiting for %s, which another process holds: %w", path, context.Cause(ctx))
		}
	}
}

func orDefault(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
