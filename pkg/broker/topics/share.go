package topics

import (
	"fmt"
	"strings"
)

// sharePrefix begins the filter of a shared subscription [MQTT-4.8.2-1].
const sharePrefix = "$share/"

// ParseShare takes "$share/group/rest" apart. Any other filter is not shared
// and comes back as rest. filter is one that [ValidFilter] accepts; an error
// says what is wrong with its group, or that no filter follows.
func ParseShare(filter string) (group, rest string, shared bool, err error) {
	of, shared := strings.CutPrefix(filter, sharePrefix)
	if !shared {
		return "", filter, false, nil
	}
	group, rest, ok := strings.Cut(of, string(separator))
	switch {
	case group == "":
		return "", "", true, fmt.Errorf("shared subscription names no group [MQTT-4.8.2-1]")
	case strings.ContainsAny(group, "+#"):
		return "", "", true, fmt.Errorf("shared subscription's group holds a wildcard [MQTT-4.8.2-2]")
	case !ok || rest == "":
		return "", "", true, fmt.Errorf("shared subscription has no topic filter behind its group [MQTT-4.8.2-2]")
	}
	return group, rest, true, nil
}
