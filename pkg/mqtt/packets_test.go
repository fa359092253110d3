package mqtt

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// acceptedPacket is a packet that is read as want and written as it came.
type acceptedPacket struct {
	name  string
	v     Version
	from  Sender
	b     string // hex
	want  any
	again string // hex, if it is not written as it came
}

// refusedPacket is refused, and not before at bytes of it are there: the byte
// that tells is the at-th. at 0 stands for the whole row.
type refusedPacket struct {
	name   string
	v      Version
	from   Sender
	b      string // hex
	at     int
	reason Reason
	says   string // part of Detail
}

var (
	allAccepted = slices.Concat(publishAccepted, ackAccepted, subscribeAccepted, subackAccepted, unsubscribeAccepted, unsubackAccepted, pingAccepted, disconnectAccepted, authAccepted)
	allRefused  = slices.Concat(publishRefused, ackRefused, subscribeRefused, subackRefused, unsubscribeRefused, unsubackRefused, pingRefused, disconnectRefused, authRefused)
)

// parseAny parses a packet of any type but CONNECT and CONNACK.
func parseAny(b []byte, v Version, from Sender) (packet any, n int, err error) {
	if len(b) == 0 {
		return nil, 0, ErrShort
	}
	switch PacketType(b[0] >> 4) {
	case TypePublish:
		return some(ParsePublish(b, v))
	case TypePuback, TypePubrec, TypePubrel, TypePubcomp:
		return some(ParseAck(b, v))
	case TypeSubscribe:
		return some(ParseSubscribe(b, v))
	case TypeSuback:
		return some(ParseSuback(b, v))
	case TypeUnsubscribe:
		return some(ParseUnsubscribe(b, v))
	case TypeUnsuback:
		return some(ParseUnsuback(b, v))
	case TypePingreq, TypePingresp:
		return some(ParsePing(b, v))
	case TypeDisconnect:
		return some(ParseDisconnect(b, v, from))
	case TypeAuth:
		return some(ParseAuth(b, v, from))
	}
	_, _, _, _, err = ParseFixedHeader(b)
	return nil, 0, err
}

func some[T any](packet T, n int, err error) (any, int, error) { return packet, n, err }

// appendAny appends what parseAny gives.
func appendAny(dst []byte, v Version, packet any) []byte {
	switch p := packet.(type) {
	case Publish:
		return AppendPublish(dst, v, p)
	case Ack:
		return AppendAck(dst, v, p)
	case Subscribe:
		return AppendSubscribe(dst, v, p)
	case Suback:
		return AppendSuback(dst, v, p)
	case Unsubscribe:
		return AppendUnsubscribe(dst, v, p)
	case Unsuback:
		return AppendUnsuback(dst, v, p)
	case PacketType:
		if p == TypePingreq {
			return AppendPingreq(dst)
		}
		return AppendPingresp(dst)
	case Disconnect:
		return AppendDisconnectPacket(dst, v, p)
	case Auth:
		return AppendAuth(dst, p)
	}
	panic(fmt.Sprintf("%T", packet))
}

func testAccepted(t *testing.T, rows []acceptedPacket) {
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			b := unhex(t, tt.b)
			got, n, err := parseAny(append(slices.Clone(b), 0x30), tt.v, tt.from)
			if err != nil || n != len(b) || !reflect.DeepEqual(got, tt.want) {
				t.Fatalf("n %d of %d, %v\ngot  %+v\nwant %+v", n, len(b), err, got, tt.want)
			}
			again := tt.again
			if again == "" {
				again = tt.b
			}
			if wrote := appendAny([]byte{0xAA}, tt.v, got); !bytes.Equal(wrote, unhex(t, "aa"+again)) {
				t.Errorf("wrote %x\nwant  aa%x", wrote, unhex(t, again))
			}
			_, _, _, head, err := ParseFixedHeader(b)
			if err != nil {
				t.Fatal(err)
			}
			for k := range b {
				size := 0
				if k >= head {
					size = len(b)
				}
				if _, n, err := parseAny(b[:k:k], tt.v, tt.from); err != ErrShort || n != size {
					t.Errorf("%d of %d bytes: n %d, %v; want %d, ErrShort", k, len(b), n, err, size)
				}
			}
		})
	}
}

func testRefused(t *testing.T, rows []refusedPacket) {
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			b := unhex(t, tt.b)
			at := tt.at
			if at == 0 {
				at = len(b)
			}
			if _, _, err := parseAny(b[:at-1:at-1], tt.v, tt.from); err != ErrShort {
				t.Errorf("one byte less: %v, want ErrShort", err)
			}
			for k := at; k <= len(b); k++ {
				_, n, err := parseAny(b[:k:k], tt.v, tt.from)
				e, ok := errors.AsType[*PacketError](err)
				if !ok {
					t.Fatalf("%d bytes: %v, want a *PacketError", k, err)
				}
				if n != 0 || e.Type != PacketType(b[0]>>4) || e.Reason != tt.reason || !strings.Contains(e.Detail, tt.says) {
					t.Errorf("%d bytes: n %d, %v; want %s, %q", k, n, e, tt.reason, tt.says)
				}
			}
		})
	}
}

func TestParsersNameWhatTheyWantAndWhatCame(t *testing.T) {
	for _, tt := range []struct {
		name  string
		parse func() error
		want  string
	}{
		{"one type", func() error { _, _, err := ParsePublish([]byte{0xC0}, V5); return err },
			"PINGREQ: Protocol Error (0x82): came where PUBLISH was due"},
		{"one of several", func() error { _, _, err := ParseAck([]byte{0x30}, V311); return err },
			"PUBLISH: Protocol Error (0x82): came where PUBACK or PUBREC or PUBREL or PUBCOMP was due"},
		{"no type at all", func() error { _, _, err := ParsePing([]byte{0x00}, V311); return err },
			"reserved packet type 0: Protocol Error (0x82): came where PINGREQ or PINGRESP was due"},
	} {
		if err := tt.parse(); err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v\nwant %s", tt.name, err, tt.want)
		}
	}
}

// parseOnly is parseAny without the allocation of an interface.
func parseOnly(b []byte, v Version, from Sender) (err error) {
	switch PacketType(b[0] >> 4) {
	case TypePublish:
		_, _, err = ParsePublish(b, v)
	case TypePuback, TypePubrec, TypePubrel, TypePubcomp:
		_, _, err = ParseAck(b, v)
	case TypeSubscribe:
		var s Subscribe
		s, _, err = ParseSubscribe(b, v)
		s.Subscriptions.Len()
	case TypeSuback:
		_, _, err = ParseSuback(b, v)
	case TypeUnsubscribe:
		var u Unsubscribe
		u, _, err = ParseUnsubscribe(b, v)
		u.Filters.Len()
	case TypeUnsuback:
		_, _, err = ParseUnsuback(b, v)
	case TypePingreq, TypePingresp:
		_, _, err = ParsePing(b, v)
	case TypeDisconnect:
		_, _, err = ParseDisconnect(b, v, from)
	case TypeAuth:
		_, _, err = ParseAuth(b, v, from)
	}
	return err
}

func TestAcceptedPacketsAreReadAndWrittenWithoutAllocating(t *testing.T) {
	buf := make([]byte, 0, 1024)
	for _, tt := range allAccepted {
		b := unhex(t, tt.b)
		if n := testing.AllocsPerRun(20, func() {
			if !serverOnly(b) {
				if _, n, err := NextFromClient(b, tt.v, len(b)); err != nil || n != len(b) {
					t.Errorf("%s: n %d of %d, %v", tt.name, n, len(b), err)
				}
			}
			if err := parseOnly(b, tt.v, tt.from); err != nil {
				t.Error(err)
			}
			parseOnly(b[:len(b)-1], tt.v, tt.from)
			appendAny(buf, tt.v, tt.want)
		}); n != 0 {
			t.Errorf("%s: %v allocations", tt.name, n)
		}
	}
}

// serverOnly says that b starts with a packet that no client sends.
func serverOnly(b []byte) bool {
	return slices.Contains([]PacketType{TypeSuback, TypeUnsuback, TypePingresp}, PacketType(b[0]>>4))
}

func FuzzParsePacket(f *testing.F) {
	for _, row := range allAccepted {
		f.Add(unhex(f, row.b), byte(row.v), row.from == FromServer)
	}
	for _, row := range allRefused {
		f.Add(unhex(f, row.b), byte(row.v), row.from == FromServer)
	}
	f.Fuzz(func(t *testing.T, b []byte, version byte, server bool) {
		v, from := V31+Version(version%3), FromClient
		if server {
			from = FromServer
		}
		packet, n, err := parseAny(b, v, from)
		if from == FromClient {
			agreesWithNext(t, b, v, n, err)
		}
		switch {
		case err == ErrShort:
			if n != 0 && n <= len(b) {
				t.Fatalf("short of %d bytes with %d", n, len(b))
			}
			return
		case err != nil:
			e, ok := errors.AsType[*PacketError](err)
			if !ok || n != 0 || e.Detail == "" || e.Type != PacketType(b[0]>>4) ||
				!slices.Contains([]Reason{MalformedPacket, ProtocolError, TopicAliasInvalid}, e.Reason) {
				t.Fatalf("n %d, %v", n, err)
			}
			return
		case packet == nil: // CONNECT or CONNACK
			return
		case n > len(b):
			t.Fatalf("n %d of %d", n, len(b))
		}
		for k := range n {
			if _, m, err := parseAny(b[:k:k], v, from); err != ErrShort || m != 0 && m != n {
				t.Fatalf("the first %d bytes of %d: n %d, %v", k, n, m, err)
			}
		}
		written := appendAny(nil, v, packet)
		again, m, err := parseAny(written, v, from)
		if err != nil || m != len(written) {
			t.Fatalf("written anew: %x, n %d, %v", written, m, err)
		}
		// As text, so that no properties and none written are the same.
		if was, is := fmt.Sprintf("%+v", packet), fmt.Sprintf("%+v", again); was != is {
			t.Fatalf("read %s\nthen %s", was, is)
		}
		// Shorter: a form with less of what goes without saying, or a remaining
		// length of 3.x in its shortest form. Longer: a DISCONNECT with a reason
		// is written with the length of its properties. 3.1 disregards some flags.
		_, disconnect := packet.(Disconnect)
		if len(written) > n && !disconnect || len(written) == n && v != V31 && !bytes.Equal(written, b[:n]) {
			t.Fatalf("read %x\nwrote %x", b[:n], written)
		}
		partsAreWrittenAsRead(t, packet)
	})
}

// agreesWithNext fails where NextFromClient and a parser tell different things
// of b.
func agreesWithNext(t *testing.T, b []byte, v Version, n int, err error) {
	typ, m, nextErr := NextFromClient(b, v, 0)
	switch {
	case nextErr == nil:
		if m > len(b) || typ != PacketType(b[0]>>4) || err == nil && m != n || err == ErrShort {
			t.Fatalf("next is %s of %d bytes; parsed %d, %v", typ, m, n, err)
		}
		if _, _, err := NextFromClient(b, v, m-1); !tooLarge(err) {
			t.Fatalf("next is of %d bytes, and with a maximum of one less: %v", m, err)
		}
	case nextErr == ErrShort:
		if err == nil || m != 0 && m <= len(b) || n != 0 && n != m {
			t.Fatalf("next is short, of %d bytes; parsed %d, %v", m, n, err)
		}
	case err == nil && n > 0 && !serverOnly(b):
		t.Fatalf("next is refused, %v; parsed %d", nextErr, n)
	}
}

func tooLarge(err error) bool {
	e, ok := errors.AsType[*PacketError](err)
	return ok && e.Reason == PacketTooLarge
}

// partsAreWrittenAsRead takes a packet's lists apart and puts them together.
func partsAreWrittenAsRead(t *testing.T, packet any) {
	var props Properties
	switch p := packet.(type) {
	case Publish:
		props = p.Properties
	case Subscribe:
		props = p.Properties
		var s Subscriptions
		for x := range p.Subscriptions.All() {
			s = s.Append(x)
		}
		if !bytes.Equal(s, p.Subscriptions) || p.Subscriptions.Len() == 0 {
			t.Fatalf("read %x\nwrote %x", p.Subscriptions, s)
		}
	case Unsubscribe:
		props = p.Properties
		var f Filters
		for x := range p.Filters.All() {
			f = f.Append(x)
		}
		if !bytes.Equal(f, p.Filters) || p.Filters.Len() == 0 {
			t.Fatalf("read %x\nwrote %x", p.Filters, f)
		}
	case Ack:
		props = p.Properties
	case Disconnect:
		props = p.Properties
	case Auth:
		props = p.Properties
	}
	var again Properties
	for q := range props.All() {
		again = again.Append(q)
	}
	if !bytes.Equal(again, props) {
		t.Fatalf("read %x\nwrote %x", props, again)
	}
}

// hexOf gives text in hexadecimal, for rows longer than one wants to type.
func hexOf(s string) string { return hex.EncodeToString([]byte(s)) }
