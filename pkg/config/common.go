package config

import "fmt"

// Rules that both configurations have.

// unique reports names that a list of items has twice.
func unique[T any](c *checker, list string, items []T, name func(T) string, why string) {
	first := map[string]string{}
	for i, item := range items {
		key, n := fmt.Sprintf("%s[%d].name", list, i), name(item)
		if other, twice := first[n]; twice && n != "" {
			c.report(key, &fault{fmt.Sprintf("%s is the name of %s (line %d) already", quote(n), parent(other), c.places[other].line), why})
		} else {
			first[n] = key
		}
	}
}

func (c *checker) listenerTLS(t TLS, key string) {
	if t.Mode == TLSOff || t.Mode == TLSPassthrough {
		// Silence here would serve in the clear, or unverified, what was meant
		// to be secured.
		mend := "write mode: terminate, or remove the key"
		for _, k := range []string{"certificates", "verify", "client_ca", "min_version", "alpn"} {
			if c.given(join(key, k)) {
				c.report(join(key, k), &fault{"has no effect with mode: " + string(t.Mode), mend})
			}
		}
	}
	if t.Mode != TLSTerminate {
		return
	}
	if len(t.Certificates) == 0 {
		c.report(key+".certificates", &fault{"is missing, but mode: terminate needs a certificate", "list at least one pair of cert and key"})
	}
	switch verifies := t.Verify == VerifyOptional || t.Verify == VerifyRequired; {
	case verifies && t.ClientCA == "":
		c.report(key+".client_ca", &fault{fmt.Sprintf("is missing, but verify: %s needs it", t.Verify), "name the PEM file with the authorities of the client certificates"})
	case t.Verify == VerifyNone && t.ClientCA != "":
		c.report(key+".client_ca", &fault{"has no effect without verify: no client certificate is asked for", "write verify: required or verify: optional, or remove client_ca"})
	}
}

// noEffect reports a key that is written but does nothing: whoever wrote it
// expects that it does.
func (c *checker) noEffect(key, why string) {
	if c.given(key) {
		c.report(key, &fault{"has no effect " + why, "remove the key"})
	}
}
