package mqtt

// Sender is the side of a connection that a packet comes from. MQTT 5.0 keeps
// some reason codes and properties of DISCONNECT and AUTH to one side.
type Sender byte

const (
	FromClient Sender = iota
	FromServer
)

// String gives "client" or "server".
func (s Sender) String() string {
	if s == FromServer {
		return "server"
	}
	return "client"
}
