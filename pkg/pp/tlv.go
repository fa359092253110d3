package pp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// TLVType names what a TLV of a version 2 header holds (PP 2.2).
type TLVType byte

const (
	ALPN      TLVType = 0x01 // protocol that the client's TLS agreed on
	Authority TLVType = 0x02 // host name that the client asked for: SNI
	CRC32C    TLVType = 0x03 // checksum of the whole header
	NoOp      TLVType = 0x04 // padding
	UniqueID  TLVType = 0x05 // the connection's name, up to MaxUniqueID bytes
	SSLInfo   TLVType = 0x20 // the client's TLS, see SSL
	NetNS     TLVType = 0x30 // network namespace

	// These stand inside SSLInfo only.
	SSLVersion    TLVType = 0x21
	SSLCN         TLVType = 0x22
	SSLCipher     TLVType = 0x23
	SSLSigAlg     TLVType = 0x24
	SSLKeyAlg     TLVType = 0x25
	SSLGroup      TLVType = 0x26
	SSLSigScheme  TLVType = 0x27
	SSLClientCert TLVType = 0x28

	// These are mqttlb's own, from the range for applications (PP 2.2.8) and
	// clear of 0xE0, 0xEA and 0xEE, which clouds use.
	SubjectDN   TLVType = 0xE1 // client certificate: subject
	SAN         TLVType = 0xE2 // client certificate: subject alternative names
	Serial      TLVType = 0xE3 // client certificate: serial number
	Fingerprint TLVType = 0xE4 // client certificate: SHA-256 of its DER
)

var tlvNames = map[TLVType]string{
	ALPN: "ALPN", Authority: "AUTHORITY", CRC32C: "CRC32C", NoOp: "NOOP",
	UniqueID: "UNIQUE_ID", SSLInfo: "SSL", NetNS: "NETNS",
	SSLVersion: "SSL_VERSION", SSLCN: "SSL_CN", SSLCipher: "SSL_CIPHER",
	SSLSigAlg: "SSL_SIG_ALG", SSLKeyAlg: "SSL_KEY_ALG", SSLGroup: "SSL_GROUP",
	SSLSigScheme: "SSL_SIG_SCHEME", SSLClientCert: "SSL_CLIENT_CERT",
	SubjectDN: "SUBJECT_DN", SAN: "SAN", Serial: "SERIAL", Fingerprint: "FINGERPRINT",
}

// String gives the specification's name and the number, as in "SSL (0x20)".
func (t TLVType) String() string {
	if name, ok := tlvNames[t]; ok {
		return fmt.Sprintf("%s (0x%02X)", name, byte(t))
	}
	return fmt.Sprintf("0x%02X", byte(t))
}

// Identity says whether a TLV of this type tells who the client is: SSLInfo and
// mqttlb's own types. A listener that terminates TLS itself must not pass on
// what somebody before it claims here.
func (t TLVType) Identity() bool {
	return t == SSLInfo || t >= SubjectDN && t <= Fingerprint
}

// TLV is one Type-Length-Value vector; a value is at most 65,535 bytes long.
type TLV struct {
	Type  TLVType
	Value []byte
}

const (
	tlvHead  = 3 // type and length
	crcBytes = 4
)

// appendTLV writes a vector. A value over 65,535 bytes would wrap its length:
// AppendV2 has refused it before.
func appendTLV[V []byte | string](dst []byte, t TLVType, value V) []byte {
	dst = append(dst, byte(t))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(value)))
	return append(dst, value...)
}

// eachTLV calls f with the vectors of raw in order; at is where the value
// starts in raw, and the value is a view of it.
func eachTLV(raw []byte, f func(t TLVType, value []byte, at int) error) error {
	for at := 0; at < len(raw); {
		if len(raw)-at < tlvHead {
			return fmt.Errorf("%w: %d stray bytes behind the last TLV", ErrMalformed, len(raw)-at)
		}
		t, size := TLVType(raw[at]), int(binary.BigEndian.Uint16(raw[at+1:]))
		at += tlvHead
		if left := len(raw) - at; size > left {
			return fmt.Errorf("%w: TLV %v announces %d bytes, %d are left", ErrMalformed, t, size, left)
		}
		if err := f(t, raw[at:at+size], at); err != nil {
			return err
		}
		at += size
	}
	return nil
}

// readTLVs judges and copies the TLVs of a whole header, whose first one
// stands at header[start]. CRC32C and NoOp are left out of the answer.
func readTLVs(header []byte, start int) (tlvs []TLV, err error) {
	var hasSSL, hasCRC bool
	err = eachTLV(header[start:], func(t TLVType, value []byte, at int) error {
		switch t {
		case NoOp:
			return nil
		case CRC32C:
			if hasCRC {
				return repeated(t)
			}
			hasCRC = true
			return verifyCRC(header, start+at, len(value))
		case SSLInfo:
			// Two of them are two claims of who the client is.
			if hasSSL {
				return repeated(t)
			}
			hasSSL = true
			if _, err := ParseSSL(value); err != nil {
				return err
			}
		case UniqueID:
			if len(value) > MaxUniqueID {
				return fmt.Errorf("%w: TLV %v of %d bytes, at most %d are allowed", ErrMalformed, t, len(value), MaxUniqueID)
			}
		}
		tlvs = append(tlvs, TLV{t, bytes.Clone(value)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return tlvs, nil
}

func repeated(t TLVType) error {
	return fmt.Errorf("%w: TLV %v stands there twice", ErrMalformed, t)
}

var noSum [crcBytes]byte

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the CRC32c of a whole header with the four bytes at the given
// place taken as zeros (PP 2.2.3).
func checksum(header []byte, at int) uint32 {
	sum := crc32.Update(0, castagnoli, header[:at])
	sum = crc32.Update(sum, castagnoli, noSum[:])
	return crc32.Update(sum, castagnoli, header[at+crcBytes:])
}

func verifyCRC(header []byte, at, size int) error {
	if size != crcBytes {
		return fmt.Errorf("%w: TLV %v of %d bytes, %d are due", ErrMalformed, CRC32C, size, crcBytes)
	}
	sent, due := binary.BigEndian.Uint32(header[at:]), checksum(header, at)
	if sent != due {
		return fmt.Errorf("%w: checksum %08x does not fit the header, whose checksum is %08x", ErrMalformed, sent, due)
	}
	return nil
}
