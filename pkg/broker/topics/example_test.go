package topics_test

import (
	"fmt"

	"github.com/mqttlb/mqttlb/pkg/broker/topics"
)

// A broker's options are what SUBSCRIBE says behind the filter, and the
// packet's Subscription Identifier.
type options struct {
	maximumQoS byte
	identifier uint32
}

// group is the members of one share name and filter. How it chooses is the
// broker's; this one takes turns.
type group struct {
	members []string
	turn    int
}

func (g *group) choose() string {
	g.turn++
	return g.members[g.turn%len(g.members)]
}

func ExampleTree() {
	var (
		sessions topics.Tree[string, options]
		groups   topics.Tree[string, *group]
	)
	subscribe := func(who, filter string, o options) {
		share, rest, shared, err := topics.ParseShare(filter)
		switch {
		case err != nil:
			fmt.Println(err)
		case !shared:
			sessions.Subscribe(rest, who, o)
		default:
			g, ok := groups.Get(rest, share)
			if !ok {
				g = &group{}
				groups.Subscribe(rest, share, g)
			}
			g.members = append(g.members, who)
		}
	}
	subscribe("panel", "site/+/lamp", options{maximumQoS: 1, identifier: 7})
	subscribe("panel", "site/#", options{maximumQoS: 0, identifier: 8})
	subscribe("worker-1", "$share/workers/site/#", options{})
	subscribe("worker-2", "$share/workers/site/#", options{})
	subscribe("worker-3", "$share/workers", options{})

	for range 2 {
		name := []byte("site/hall/lamp")
		maximum, identifiers := byte(0), 0
		sessions.Match(name, func(who string, o options) {
			maximum = max(maximum, o.maximumQoS)
			identifiers++
		})
		fmt.Printf("panel: one message at QoS %d with %d identifiers\n", maximum, identifiers)
		groups.Match(name, func(share string, g *group) {
			fmt.Printf("%s: %s\n", share, g.choose())
		})
	}
	// Output:
	// shared subscription has no topic filter behind its group [MQTT-4.8.2-2]
	// panel: one message at QoS 1 with 2 identifiers
	// workers: worker-2
	// panel: one message at QoS 1 with 2 identifiers
	// workers: worker-1
}
