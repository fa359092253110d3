package mqtt

// ConnectOptions is what AppendConnect writes. The zero value is a 3.1.1
// CONNECT with Clean Session 0 and an empty Client Identifier.
type ConnectOptions struct {
	Version    Version // zero stands for V311
	Bridge     bool    // sets bit 7 of the protocol level
	ClientID   string
	CleanStart bool   // Clean Session in 3.x
	KeepAlive  uint16 // seconds; 0 is none
	Username   []byte // nil: none; empty: an empty one
	Password   []byte // nil: none; empty: an empty one
	Will       *Will  // nil: none
	Properties Properties
}

// Will is the message that a server publishes for a client that is gone.
type Will struct {
	Topic      string
	Payload    []byte
	QoS        byte
	Retain     bool
	Properties Properties
}

// AppendConnect appends the CONNECT that o describes. It checks nothing, so
// that probes and tests may send what is wrong, too; it panics only at what
// cannot be written: a field over 65,535 bytes, a packet over 256 MiB.
// Properties are left out in 3.x, which has none.
func AppendConnect(dst []byte, o ConnectOptions) []byte {
	v := o.Version
	if v == 0 {
		v = V311
	}
	level := byte(v)
	if o.Bridge {
		level |= bridgeBit
	}
	var flags byte
	if o.CleanStart {
		flags |= flagCleanStart
	}
	// Level, flags, Keep Alive and the lengths of name and Client Identifier.
	size := 2 + len(v.protocolName()) + 1 + 1 + 2 + 2 + len(o.ClientID)
	if v == V5 {
		size += varintSize(len(o.Properties)) + len(o.Properties)
	}
	if w := o.Will; w != nil {
		flags |= flagWill | w.QoS<<shiftWillQoS&flagWillQoS
		if w.Retain {
			flags |= flagWillRetain
		}
		size += 2 + len(w.Topic) + 2 + len(w.Payload)
		if v == V5 {
			size += varintSize(len(w.Properties)) + len(w.Properties)
		}
	}
	if o.Username != nil {
		flags |= flagUsername
		size += 2 + len(o.Username)
	}
	if o.Password != nil {
		flags |= flagPassword
		size += 2 + len(o.Password)
	}

	dst = appendVarint(append(dst, byte(TypeConnect)<<4), size)
	dst = appendField(dst, v.protocolName())
	dst = append(dst, level, flags, byte(o.KeepAlive>>8), byte(o.KeepAlive))
	if v == V5 {
		dst = appendSection(dst, o.Properties)
	}
	dst = appendField(dst, o.ClientID)
	if w := o.Will; w != nil {
		if v == V5 {
			dst = appendSection(dst, w.Properties)
		}
		dst = appendField(dst, w.Topic)
		dst = appendField(dst, w.Payload)
	}
	if o.Username != nil {
		dst = appendField(dst, o.Username)
	}
	if o.Password != nil {
		dst = appendField(dst, o.Password)
	}
	return dst
}

// sectionSize is the number of bytes that appendSection appends.
func sectionSize(p Properties) int { return varintSize(len(p)) + len(p) }

// appendSection appends properties with their length before them.
func appendSection(dst []byte, p Properties) []byte {
	return append(appendVarint(dst, len(p)), p...)
}
