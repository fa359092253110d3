package mqtt

import "iter"

// Subscriptions is the payload of a SUBSCRIBE as it goes over the wire: pairs
// of Topic Filter and options. Those of a parsed packet are valid and alias its
// buffer. New ones are made by appending:
//
//	mqtt.Subscriptions(nil).Append(mqtt.Subscription{Filter: []byte("a/+"), QoS: 1})
type Subscriptions []byte

// Subscription is one filter of a SUBSCRIBE and how messages are wanted.
type Subscription struct {
	Filter []byte
	QoS    byte // the most that messages are wanted with

	// What follows is of 5.0 only; 3.x has the zero values.

	NoLocal           bool // none that this client itself published
	RetainAsPublished bool // with RETAIN as it was published, else cleared
	RetainHandling    RetainHandling
}

// RetainHandling says whether subscribing asks for retained messages.
type RetainHandling byte

const (
	SendRetained      RetainHandling = 0
	SendRetainedIfNew RetainHandling = 1 // only if the subscription did not exist yet
	DontSendRetained  RetainHandling = 2
)

// The bits of the Subscription Options (5 §3.8.3.1).
const (
	optionQoS               = 3 << 0
	optionNoLocal           = 1 << 2
	optionRetainAsPublished = 1 << 3
	optionRetainHandling    = 3 << 4
	optionsReserved         = 3 << 6

	shiftRetainHandling = 4
)

// All gives the subscriptions in their order, up to the first bytes that are
// none, which those of a parsed packet do not have.
func (s Subscriptions) All() iter.Seq[Subscription] {
	return func(yield func(Subscription) bool) {
		c := cursor{b: s, end: len(s)}
		for c.pos < c.end {
			filter, options := c.subscription(nil)
			if c.stopped() || !yield(Subscription{
				Filter:            filter,
				QoS:               options & optionQoS,
				NoLocal:           options&optionNoLocal != 0,
				RetainAsPublished: options&optionRetainAsPublished != 0,
				RetainHandling:    RetainHandling(options & optionRetainHandling >> shiftRetainHandling),
			}) {
				return
			}
		}
	}
}

// Len is how many subscriptions there are, and so how many reason codes the
// SUBACK has to have.
func (s Subscriptions) Len() (n int) {
	for range s.All() {
		n++
	}
	return n
}

// Append appends a subscription. What 3.x does not have has to be zero in it.
// It panics if the filter is longer than 65,535 bytes.
func (s Subscriptions) Append(x Subscription) Subscriptions {
	options := x.QoS&optionQoS | byte(x.RetainHandling)<<shiftRetainHandling&optionRetainHandling
	if x.NoLocal {
		options |= optionNoLocal
	}
	if x.RetainAsPublished {
		options |= optionRetainAsPublished
	}
	return append(appendField(s, x.Filter), options)
}

// subscription reads one filter and its options; check is that of the filter.
func (c *cursor) subscription(check func(what string, f []byte, whole bool) *fault) (filter []byte, options byte) {
	c.expect(1, maxVarint) // options, further subscriptions
	filter = c.field("Topic Filter", check)
	c.take(1, maxVarint)
	return filter, byte(c.uint("subscription options", 1))
}
