package mqtt

import "strconv"

// Version is an MQTT protocol version, numbered as the CONNECT protocol level
// numbers it. Zero stands for a version that is not known.
type Version byte

const (
	V31  Version = 3 // MQTT 3.1, protocol name "MQIsdp"
	V311 Version = 4 // MQTT 3.1.1
	V5   Version = 5 // MQTT 5.0
)

// String gives "3.1", "3.1.1" or "5.0", and "unknown" for zero.
func (v Version) String() string {
	switch v {
	case 0:
		return "unknown"
	case V31:
		return "3.1"
	case V311:
		return "3.1.1"
	case V5:
		return "5.0"
	default:
		return "level " + strconv.Itoa(int(v))
	}
}

// protocolName is the name that CONNECT carries [MQTT-3.1.2-1].
func (v Version) protocolName() string {
	if v == V31 {
		return "MQIsdp"
	}
	return "MQTT"
}
