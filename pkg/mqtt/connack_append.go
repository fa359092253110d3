package mqtt

// ConnackOptions is what AppendConnackPacket writes.
type ConnackOptions struct {
	SessionPresent bool // left out beside a refusal, and in 3.1, which has none
	Reason         Reason
	Properties     Properties // left out in 3.x, which has none
}

// AppendConnackPacket appends the CONNACK that o describes. It appends nothing
// where no CONNACK may be sent: for version 0, and in 3.x for a reason that has
// no return code (3.1.1 [MQTT-3.2.2-6]). It checks no properties and panics only
// at what cannot be written.
func AppendConnackPacket(dst []byte, v Version, o ConnackOptions) []byte {
	var flags byte
	if o.SessionPresent && o.Reason == Success && v != V31 { // [MQTT-3.2.2-6] (3.1.1 [MQTT-3.2.2-4])
		flags = 1
	}
	switch v {
	case V31, V311:
		code, ok := o.Reason.V3()
		if !ok {
			return dst
		}
		return append(appendHead(dst, TypeConnack, 0, 2), flags, code)
	case V5:
		dst = appendHead(dst, TypeConnack, 0, 2+sectionSize(o.Properties))
		return appendSection(append(dst, flags, byte(o.Reason)), o.Properties)
	default:
		return dst
	}
}
