package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"
)

// textKind checks one kind of text and gives its canonical form. What is
// wrong comes back as a [fault].
type textKind struct {
	check   func(string) (string, *fault)
	example string // for whoever left the key out
	empty   bool   // whether an empty text is allowed where the key is not required
}

// fault is what is wrong with a value, and how to mend it.
type fault struct{ what, mend string }

const (
	listenExample = `host:port, e.g. "127.0.0.1:1883", or ":1883" for all addresses`
	dialExample   = `host:port, e.g. "10.0.0.7:1883"`
)

var textKinds = map[string]textKind{
	"name":        {check: checkName, example: `a name, e.g. "b1"`},
	"listen":      {check: checkListen, example: listenExample, empty: true},
	"dial":        {check: checkDial, example: dialExample},
	"prefix":      {check: checkPrefix, example: `an address range, e.g. "10.0.0.0/8"`},
	"server_name": {check: checkServerName, example: `a host name, e.g. "mqtt.example.com"`},
	"sni":         {check: checkSNI, example: `a host name, e.g. "mqtt.example.com" or "*.example.com"`},
	"alpn":        {check: checkALPN, example: `a protocol name, e.g. "mqtt"`},
	"topic":       {check: checkTopic, example: `a topic, e.g. "mqttlb/check"`},
	"file":        {check: checkFile, example: "the path of a PEM file"},
	"folder":      {check: checkFolder, example: `the path of a folder, e.g. "/var/lib/broker"`},
}

// quote shows a value in a message: no control characters, not endless, and
// nothing of what stands before an "@", which may be a password.
func quote(v string) string {
	if i := strings.LastIndexByte(v, '@'); i >= 0 {
		v = "…" + v[i:]
	}
	if len(v) > 80 {
		v = strings.ToValidUTF8(v[:80], "") + "…"
	}
	return strconv.Quote(v)
}

// maxName is the longest name in bytes.
const maxName = 128

// checkName takes ASCII only: a name places a backend on the ring by its
// bytes, and two spellings of one accented letter would be two places.
func checkName(v string) (string, *fault) {
	if len(v) > maxName {
		return "", &fault{fmt.Sprintf("the name is %d bytes long", len(v)), fmt.Sprintf("use at most %d", maxName)}
	}
	for i, r := range v {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("._:@-", r)) {
			return "", &fault{fmt.Sprintf("%s holds %q, which a name can't have there", quote(v), r),
				"use the letters a-z and A-Z, digits, and after the first also . _ : @ -"}
		}
	}
	return v, nil
}

func checkListen(v string) (string, *fault) {
	return checkHostPort(v, 0, listenExample, func(host string) bool { return host == "" || isHost(host) })
}

func checkDial(v string) (string, *fault) {
	return checkHostPort(v, 1, dialExample, isHost)
}

func checkHostPort(v string, leastPort int, example string, hostOK func(string) bool) (string, *fault) {
	if scheme, rest, ok := strings.Cut(v, "://"); ok {
		return "", &fault{fmt.Sprintf("is a URL (%s://)", scheme), "write only host:port, e.g. " + strconv.Quote(urlHost(rest))}
	}
	host, port, err := net.SplitHostPort(v)
	if err != nil {
		if a, err := netip.ParseAddr(v); err == nil && a.Is6() {
			return "", &fault{quote(v) + " has no port", fmt.Sprintf("write an IPv6 address in brackets, e.g. %q", "["+v+"]:1883")}
		}
		if _, err := strconv.ParseUint(v, 10, 16); err == nil {
			return "", &fault{quote(v) + " has no host", "write " + strings.ReplaceAll(example, "1883", v)}
		}
		if !strings.Contains(v, ":") && hostOK(v) && v != "" {
			return "", &fault{quote(v) + " has no port", fmt.Sprintf("write host:port, e.g. %q", v+":1883")}
		}
		return "", &fault{quote(v) + " is not host:port", "write " + example}
	}
	if !hostOK(host) {
		if host == "" {
			return "", &fault{quote(v) + " has no host", "write " + example}
		}
		if host == "*" {
			return "", &fault{quote(v) + ` has "*" for a host`, fmt.Sprintf("write %q for all addresses", ":"+port)}
		}
		return "", &fault{fmt.Sprintf("%s has a host that is neither a name nor an address", quote(v)), "write " + example}
	}
	if n, err := strconv.Atoi(port); err != nil || strconv.Itoa(n) != port || n < leastPort || n > 65535 {
		return "", &fault{fmt.Sprintf("%s has the port %s", quote(v), quote(port)), fmt.Sprintf("write a number from %d to 65535", leastPort)}
	}
	return v, nil
}

// urlHost is what of a URL's rest may be shown and may help: no user, no path.
func urlHost(rest string) string {
	rest, _, _ = strings.Cut(rest, "/")
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	if _, fault := checkDial(rest); fault != nil {
		return "10.0.0.7:1883"
	}
	return rest
}

// isHost takes IP addresses and names; underscores too, since container
// networks have them in names.
func isHost(v string) bool {
	if _, err := netip.ParseAddr(v); err == nil {
		return true
	}
	return isDomain(v)
}

func isDomain(v string) bool {
	v = strings.TrimSuffix(v, ".")
	if v == "" || len(v) > 253 {
		return false
	}
	for label := range strings.SplitSeq(v, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, r := range label {
			if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_') {
				return false
			}
		}
	}
	return true
}

func checkPrefix(v string) (string, *fault) {
	if a, err := netip.ParseAddr(v); err == nil && a.Zone() == "" && !a.Is4In6() {
		return netip.PrefixFrom(a, a.BitLen()).String(), nil
	}
	p, err := netip.ParsePrefix(v)
	if err != nil || p.Addr().Is4In6() {
		return "", &fault{quote(v) + " is not a range of addresses", `write e.g. "10.0.0.0/8", "10.0.0.7" or "fd00::/8"`}
	}
	if p != p.Masked() {
		return "", &fault{fmt.Sprintf("%s has bits set behind its first %d", quote(v), p.Bits()),
			fmt.Sprintf("write %q for the range or %q for the one address", p.Masked(), p.Addr())}
	}
	return p.String(), nil
}

func checkServerName(v string) (string, *fault) {
	if !isHost(v) {
		return "", &fault{quote(v) + " is not a host name", `write the name alone, e.g. "mqtt.example.com"`}
	}
	return strings.ToLower(strings.TrimSuffix(v, ".")), nil
}

func checkSNI(v string) (string, *fault) {
	if _, err := netip.ParseAddr(v); err == nil {
		return "", &fault{quote(v) + " is an address, and clients name no server when they connect to an address", "write a host name, or leave the route out and use the listener's pool"}
	}
	if name := strings.TrimPrefix(v, "*."); !isDomain(name) {
		return "", &fault{quote(v) + " is not a host name", `write the name alone, e.g. "mqtt.example.com" or "*.example.com"`}
	}
	return strings.ToLower(strings.TrimSuffix(v, ".")), nil
}

func checkALPN(v string) (string, *fault) {
	if len(v) > 255 { // RFC 7301 §3.1
		return "", &fault{fmt.Sprintf("the protocol name is %d bytes long", len(v)), "use at most 255"}
	}
	return v, nil
}

// checkTopic follows [MQTT-3.3.2-2], [MQTT-1.5.4-1] and [MQTT-4.7.3-2]. Topics
// of the server itself can't be published to.
func checkTopic(v string) (string, *fault) {
	switch {
	case strings.ContainsAny(v, "+#"):
		return "", &fault{quote(v) + " holds a wildcard", "write one topic, without + and #"}
	case strings.HasPrefix(v, "$"):
		return "", &fault{quote(v) + ` begins with "$", where brokers let nobody publish`, "write another topic"}
	case len(v) > 65535 || !utf8.ValidString(v) || strings.ContainsRune(v, 0):
		return "", &fault{"is not a topic of MQTT", "use at most 65,535 bytes of UTF-8 without U+0000"}
	}
	return v, nil
}

// checkFile shows nothing of what can't be a path: it may be the key itself.
func checkFile(v string) (string, *fault) {
	if !isPath(v) {
		return "", &fault{"is not the path of a file", "write the path of a PEM file, not what is in it"}
	}
	if strings.HasPrefix(v, "-----BEGIN") {
		return "", &fault{"is PEM text, not the path of a file", "write the path of a PEM file, not what is in it"}
	}
	return filepath.Clean(v), nil
}

func checkFolder(v string) (string, *fault) {
	if !isPath(v) {
		return "", &fault{"is not the path of a folder", `write e.g. "/var/lib/broker"`}
	}
	return filepath.Clean(v), nil
}

func isPath(v string) bool {
	for part := range strings.SplitSeq(v, string(filepath.Separator)) {
		if len(part) > 255 || strings.ContainsAny(part, "\n\x00") {
			return false
		}
	}
	return true
}
