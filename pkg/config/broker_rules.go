package config

import (
	"fmt"
	"time"
)

func (b *Broker) complete(*checker) {}

func (b *Broker) rules(c *checker) {
	unique(c, "listeners", b.Listeners, func(l BrokerListener) string { return l.Name }, "give each listener a name of its own")
	var sockets []socket
	for i, l := range b.Listeners {
		key := fmt.Sprintf("listeners[%d]", i)
		c.listenerTLS(TLS(l.TLS), key+".tls")
		sockets = append(sockets, socket{key + ".address", l.Address})
	}
	sockets = append(sockets, ownSockets(b.Admin.Address, b.HealthEndpoint)...)
	if b.Cluster != nil {
		c.cluster(b)
		sockets = append(sockets, socket{"cluster.listen", b.Cluster.Listen})
	}
	c.sockets(sockets)
	c.brokerLimits(&b.Limits, "limits")
	if m := b.Store.MaxBytes; m > 0 && m < leastStore {
		c.report("store.max_bytes", &fault{fmt.Sprintf("%d bytes leave no room to work in", m), "write at least 64 MiB, or 0 for as much as the disk has"})
	}
}

// leastStore has room for some of the files of a few megabytes that the store
// cuts its log into, and gives back as a whole.
const leastStore = 64 << 20

func (c *checker) brokerLimits(l *BrokerLimits, key string) {
	if l.MaxTopicLength > 0 && l.MaxPacketSize > 0 && l.MaxTopicLength+publishOverhead > l.MaxPacketSize {
		c.report(key+".max_packet_size", &fault{fmt.Sprintf("%d bytes have no room for a topic of %d", l.MaxPacketSize, l.MaxTopicLength), "raise it, or lower max_topic_length"})
	}
	if l.MaxQueuedBytes > 0 && l.MaxQueuedBytes < l.MaxPacketSize {
		c.report(key+".max_queued_bytes", &fault{fmt.Sprintf("%d bytes are less than one packet of max_packet_size, %d", l.MaxQueuedBytes, l.MaxPacketSize), "raise it, or lower max_packet_size"})
	}
	c.wholeSeconds(l.MaxKeepAlive, key+".max_keep_alive")
	c.wholeSeconds(l.MaxSessionExpiry, key+".max_session_expiry")
}

// publishOverhead is what a PUBLISH has beside its topic and payload, user
// properties aside: fixed header, lengths, packet identifier, an expiry.
const publishOverhead = 32

// wholeSeconds: MQTT counts in them.
func (c *checker) wholeSeconds(d time.Duration, key string) {
	if d%time.Second != 0 {
		c.report(key, &fault{fmt.Sprintf("%s is no whole number of seconds, which is what MQTT counts in", d), fmt.Sprintf("write e.g. %q", d.Truncate(time.Second)+time.Second)})
	}
}
