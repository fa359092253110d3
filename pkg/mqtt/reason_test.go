package mqtt

import "testing"

func TestReasonNamesAreTheSpecifications(t *testing.T) {
	for r, want := range map[Reason]string{
		Success:                           "Success",
		MalformedPacket:                   "Malformed Packet",
		ClientIdentifierNotValid:          "Client Identifier not valid",
		PacketTooLarge:                    "Packet too large",
		WildcardSubscriptionsNotSupported: "Wildcard Subscriptions not supported",
		0x42:                              "reason code 0x42",
		0xFF:                              "reason code 0xff",
	} {
		if got := r.String(); got != want {
			t.Errorf("0x%02x is %q, want %q", byte(r), got, want)
		}
	}
}

func TestEveryErrorReasonFrom0x80To0xA2HasAName(t *testing.T) {
	for r := UnspecifiedError; r <= WildcardSubscriptionsNotSupported; r++ {
		if reasonNames[r] == "" {
			t.Errorf("0x%02x has no name", byte(r))
		}
	}
}

func TestReasonsInV3(t *testing.T) {
	want := map[Reason]byte{
		Success:                    0,
		UnsupportedProtocolVersion: 1,
		ClientIdentifierNotValid:   2,
		ServerUnavailable:          3, ServerBusy: 3, ServerShuttingDown: 3, QuotaExceeded: 3,
		UseAnotherServer: 3, ServerMoved: 3, ConnectionRateExceeded: 3,
		BadUserNameOrPassword: 4,
		NotAuthorized:         5, Banned: 5, BadAuthenticationMethod: 5,
	}
	for r := range 256 {
		code, ok := Reason(r).V3()
		if w, has := want[Reason(r)]; ok != has || code != w {
			t.Errorf("%s: %d %v, want %d %v", Reason(r), code, ok, w, has)
		}
	}
}

func TestVersionNames(t *testing.T) {
	for v, want := range map[Version]string{0: "unknown", V31: "3.1", V311: "3.1.1", V5: "5.0", 9: "level 9"} {
		if got := v.String(); got != want {
			t.Errorf("%d is %q, want %q", byte(v), got, want)
		}
	}
}
