package pp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
)

// AppendV1 appends the version 1 line of a connection from source to
// destination, the client's end first (PP 2.1).
//
// A line states one family for both: two IPv4 addresses, mapped ones included,
// make TCP4; one of IPv6 makes TCP6, and an IPv4 address beside it is written
// as ::ffff:a.b.c.d. Without both addresses the line is PROXY UNKNOWN, which
// some receivers refuse. Zones are left out.
func AppendV1(dst []byte, source, destination netip.AddrPort) []byte {
	source, destination, transport := oneFamily(source, destination)
	dst = append(dst, signatureV1...)
	switch transport {
	case tcp4:
		dst = append(dst, "TCP4 "...)
	case tcp6:
		dst = append(dst, "TCP6 "...)
	default:
		return append(dst, "UNKNOWN\r\n"...)
	}
	dst = source.Addr().AppendTo(dst)
	dst = append(dst, ' ')
	dst = destination.Addr().AppendTo(dst)
	dst = append(dst, ' ')
	dst = strconv.AppendUint(dst, uint64(source.Port()), 10)
	dst = append(dst, ' ')
	dst = strconv.AppendUint(dst, uint64(destination.Port()), 10)
	return append(dst, "\r\n"...)
}

// AppendV2 appends a version 2 header (PP 2.2); crc adds the checksum TLV.
//
// Families are chosen as in AppendV1: transport 0x11 for two IPv4 addresses,
// 0x21 with mapped ones otherwise. TLVs keep their order, and a CRC32C among
// them is left out: it would be of another header.
//
// A header without both addresses goes out as LOCAL, whatever h.Command says.
// That is what HAProxy does, and it has receivers use the connection's own
// addresses; PROXY with UNSPEC would mean the same, but HAProxy and
// go-proxyproto close on it.
//
// A header of more than MaxHeader bytes or a UniqueID over MaxUniqueID gives
// ErrTooLarge; dst is then as it was.
func AppendV2(dst []byte, h Header, crc bool) ([]byte, error) {
	var source, destination netip.AddrPort
	var transport byte = unspec
	if h.Command == Proxy {
		source, destination, transport = oneFamily(h.Source, h.Destination)
	}
	command := Proxy
	if transport == unspec {
		command = Local
	}
	size, err := sizeV2(transport, h.TLVs, crc)
	if err != nil {
		return dst, err
	}
	begin := len(dst)
	dst = append(dst, signatureV2...)
	dst = append(dst, 2<<4|byte(command), transport)
	dst = binary.BigEndian.AppendUint16(dst, uint16(size-fixedV2))
	switch transport {
	case tcp4:
		s, d := source.Addr().As4(), destination.Addr().As4()
		dst = append(append(dst, s[:]...), d[:]...)
	case tcp6:
		s, d := source.Addr().As16(), destination.Addr().As16()
		dst = append(append(dst, s[:]...), d[:]...)
	}
	if transport != unspec {
		dst = binary.BigEndian.AppendUint16(dst, source.Port())
		dst = binary.BigEndian.AppendUint16(dst, destination.Port())
	}
	for _, tlv := range h.TLVs {
		if tlv.Type != CRC32C {
			dst = appendTLV(dst, tlv.Type, tlv.Value)
		}
	}
	if crc {
		dst = appendTLV(dst, CRC32C, "\x00\x00\x00\x00")
		at := len(dst) - crcBytes
		binary.BigEndian.PutUint32(dst[at:], checksum(dst[begin:], at-begin))
	}
	return dst, nil
}

// sizeV2 is the size of the whole header, once it is known to be within limits.
func sizeV2(transport byte, tlvs []TLV, crc bool) (int, error) {
	size := fixedV2 + addressSize[transport]
	for _, tlv := range tlvs {
		switch {
		case tlv.Type == CRC32C:
			continue
		case tlv.Type == UniqueID && len(tlv.Value) > MaxUniqueID:
			return 0, fmt.Errorf("%w: TLV %v of %d bytes, at most %d are allowed", ErrTooLarge, tlv.Type, len(tlv.Value), MaxUniqueID)
		}
		size += tlvHead + len(tlv.Value)
	}
	if crc {
		size += tlvHead + crcBytes
	}
	if size > MaxHeader {
		return 0, fmt.Errorf("%w: %d bytes with its TLVs, the limit is %d", ErrTooLarge, size, MaxHeader)
	}
	return size, nil
}

// oneFamily puts both addresses into the family that a header can state for
// the two: IPv4 if both are, mapped or not, else IPv6.
//
// netip keeps a mapped address apart from a plain one; net.IP prints it as
// plain IPv4, which is how mixed lines came about.
func oneFamily(a, b netip.AddrPort) (_, _ netip.AddrPort, transport byte) {
	if !a.IsValid() || !b.IsValid() {
		return netip.AddrPort{}, netip.AddrPort{}, unspec
	}
	x, y := a.Addr().Unmap(), b.Addr().Unmap()
	transport = tcp4
	if !x.Is4() || !y.Is4() {
		x, y = netip.AddrFrom16(x.As16()), netip.AddrFrom16(y.As16())
		transport = tcp6
	}
	return netip.AddrPortFrom(x, a.Port()), netip.AddrPortFrom(y, b.Port()), transport
}
