package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Namespaces are network namespaces joined by a bridge in the one that the
// caller lives in, which has to be one of its own: see [Apart]. Everything goes
// with that one.
type Namespaces struct {
	Names []string
	Hosts []string // the address of each
}

// Apart is a command that runs another in a network namespace of its own, where
// it may make more of them. They are seen by nobody else, and end with the last
// process that is in them. It needs root.
func Apart(ctx context.Context, command ...string) *exec.Cmd {
	const script = `ip link set lo up && mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && exec "$@"`
	return exec.CommandContext(ctx, "unshare", append([]string{"--net", "--mount", "sh", "-c", script, "sh"}, command...)...)
}

func namespaceFile(name string) string { return "/run/netns/" + name }

// NewNamespaces makes n namespaces: node-1 with the address 10.77.0.1, and so on.
func NewNamespaces(ctx context.Context, n int) (*Namespaces, error) {
	s := &Namespaces{}
	commands := []string{"ip link add bridge type bridge", "ip addr add 10.77.0.254/24 dev bridge", "ip link set bridge up"}
	for i := range n {
		name, host := fmt.Sprintf("node-%d", i+1), fmt.Sprintf("10.77.0.%d", i+1)
		s.Names, s.Hosts = append(s.Names, name), append(s.Hosts, host)
		commands = append(commands,
			"ip netns add "+name,
			fmt.Sprintf("ip link add to-%s type veth peer name eth0 netns %[1]s", name),
			fmt.Sprintf("ip link set to-%s master bridge up", name),
			fmt.Sprintf("ip -n %s addr add %s/24 dev eth0", name, host),
			fmt.Sprintf("ip -n %s link set lo up", name),
			fmt.Sprintf("ip -n %s link set eth0 up", name),
		)
	}
	return s, run(ctx, commands)
}

// Cut has nftables drop all packets between one of them and the others, in both
// directions. What comes from elsewhere still reaches it.
func (s *Namespaces) Cut(ctx context.Context, one int) error {
	var others []string
	for i, host := range s.Hosts {
		if i != one {
			others = append(others, host)
		}
	}
	set, nft := strings.Join(others, ","), "ip netns exec "+s.Names[one]+" nft "
	return run(ctx, []string{
		nft + "add table ip cut",
		nft + "add chain ip cut in { type filter hook input priority 0 ; }",
		nft + "add chain ip cut out { type filter hook output priority 0 ; }",
		nft + "add rule ip cut in ip saddr {" + set + "} drop",
		nft + "add rule ip cut out ip daddr {" + set + "} drop",
	})
}

// Heal undoes Cut.
func (s *Namespaces) Heal(ctx context.Context, one int) error {
	return run(ctx, []string{"ip netns exec " + s.Names[one] + " nft delete table ip cut"})
}

// run runs commands whose words have no spaces.
func run(ctx context.Context, commands []string) error {
	for _, c := range commands {
		word := strings.Fields(c)
		path, err := findCommand(word[0])
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, path, word[1:]...)
		cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", c, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
