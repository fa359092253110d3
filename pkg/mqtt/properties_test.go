package mqtt

import (
	"reflect"
	"slices"
	"testing"
)

func TestPropertiesAreReadAsAppended(t *testing.T) {
	p := Properties(nil).
		AppendUint(PropPayloadFormatIndicator, 1).
		AppendUint(PropServerKeepAlive, 65535).
		AppendUint(PropSessionExpiryInterval, 1<<32-1).
		AppendUint(PropSubscriptionIdentifier, maxVarint).
		AppendText(PropReasonString, "why").
		AppendText(PropResponseTopic, "a/b").
		AppendText(PropCorrelationData, "\x00\xff").
		AppendUser("key", "").
		AppendUser("key", "again")
	want := []Property{
		{ID: PropPayloadFormatIndicator, Uint: 1},
		{ID: PropServerKeepAlive, Uint: 65535},
		{ID: PropSessionExpiryInterval, Uint: 1<<32 - 1},
		{ID: PropSubscriptionIdentifier, Uint: maxVarint},
		{ID: PropReasonString, Value: []byte("why")},
		{ID: PropResponseTopic, Value: []byte("a/b")},
		{ID: PropCorrelationData, Value: []byte("\x00\xff")},
		{ID: PropUserProperty, Key: []byte("key"), Value: []byte{}},
		{ID: PropUserProperty, Key: []byte("key"), Value: []byte("again")},
	}
	if got := slices.Collect(p.All()); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	var again Properties
	for _, q := range want {
		again = again.Append(q)
	}
	if string(again) != string(p) {
		t.Errorf("appended one by one %x\nwant                %x", again, p)
	}
}

func TestAllEndsAtWhatIsNoProperty(t *testing.T) {
	good := Properties(nil).AppendUint(PropTopicAlias, 7)
	for _, bad := range []string{"\x00", "\x7f\x01", "\x23", "\x23\x00", "\x0b\x80", "\x0b\x80\x00", "\x1f\x00\x02a", "\x26\x00\x01k\x00\x01", "\x23\x00\x00"} {
		p := append(slices.Clone(good), bad...)
		if got := slices.Collect(p.All()); len(got) != 1 || got[0].Uint != 7 {
			t.Errorf("behind it %q: %+v", bad, got)
		}
	}
	for range append(good, good...).All() {
		break // a caller may leave
	}
}

func TestAllDoesNotAllocate(t *testing.T) {
	p := Properties(nil).AppendUint(PropReceiveMaximum, 20).AppendUser("k", "v")
	n := 0
	if allocs := testing.AllocsPerRun(100, func() {
		for prop := range p.All() {
			n += len(prop.Value)
		}
	}); allocs != 0 || n == 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestAppendingWhatAPropertyCannotHoldPanics(t *testing.T) {
	for name, appendIt := range map[string]func(){
		"text as integer":  func() { Properties(nil).AppendUint(PropReasonString, 1) },
		"byte over 255":    func() { Properties(nil).AppendUint(PropMaximumQoS, 256) },
		"two bytes over":   func() { Properties(nil).AppendUint(PropReceiveMaximum, 65536) },
		"varint over":      func() { Properties(nil).AppendUint(PropSubscriptionIdentifier, maxVarint+1) },
		"integer as text":  func() { Properties(nil).AppendText(PropReceiveMaximum, "1") },
		"unknown property": func() { Properties(nil).AppendUint(0x7f, 1) },
		"text too long":    func() { Properties(nil).AppendText(PropReasonString, string(make([]byte, 65536))) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it does not")
				}
			}()
			appendIt()
		})
	}
}

// The packets that 5 §2.2.2.2 names for each property, by its identifier.
func TestPropertiesStandWhereTheSpecificationSays(t *testing.T) {
	for in, ids := range map[where]string{
		inConnect:    "11 15 16 17 19 21 22 26 27",
		inConnack:    "11 12 13 15 16 1a 1c 1f 21 22 24 25 26 27 28 29 2a",
		inWill:       "01 02 03 08 09 18 26",
		inPublish:    "01 02 03 08 09 0b 23 26",
		inSubscribe:  "0b 26",
		inDisconnect: "11 1c 1f 26",
		inAuth:       "15 16 1f 26",

		inUnsubscribe:     "26",
		1 << TypePuback:   "1f 26",
		1 << TypePubrec:   "1f 26",
		1 << TypePubrel:   "1f 26",
		1 << TypePubcomp:  "1f 26",
		1 << TypeSuback:   "1f 26",
		1 << TypeUnsuback: "1f 26",
		1 << TypePingreq:  "",
		1 << TypePingresp: "",
	} {
		want := unhex(t, ids)
		for id := range PropertyID(0x80) {
			if got := id.rule().in&in != 0; got != slices.Contains(want, byte(id)) {
				t.Errorf("%s (0x%02x) in packets %016b: %v", id, byte(id), in, got)
			}
		}
	}
}

func TestPropertyNames(t *testing.T) {
	for id, want := range map[PropertyID]string{
		PropUserProperty: "User Property", PropSharedSubscriptionAvailable: "Shared Subscription Available",
		0x04: "property 0x04", 0xff: "property 0xff",
	} {
		if got := id.String(); got != want {
			t.Errorf("0x%02x is %q, want %q", byte(id), got, want)
		}
	}
}
