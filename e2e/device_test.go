package e2e

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// device is a client that sees every byte and does nothing by itself.
type device struct {
	net.Conn
	id     string
	socket *net.TCPConn // below TLS
	r      *bufio.Reader
}

// way is how a device reaches a listener.
type way struct {
	addr string
	from string      // the address to dial from; "" leaves it to the kernel
	tls  *tls.Config // nil: none
}

// dial opens the connection and sends nothing.
func (w way) dial(t testing.TB) (*device, error) {
	d := net.Dialer{Timeout: patience}
	if w.from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(w.from)}
	}
	c, err := d.DialContext(t.Context(), "tcp", w.addr)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	dev := &device{Conn: c, socket: c.(*net.TCPConn)}
	if w.tls != nil {
		dev.Conn = tls.Client(c, w.tls)
	}
	dev.r = bufio.NewReader(dev.Conn)
	dev.SetDeadline(time.Now().Add(patience))
	return dev, nil
}

// connect sends CONNECT and gives the answer.
func (w way) connect(t testing.TB, o mqtt.ConnectOptions) (*device, mqtt.Connack, error) {
	d, err := w.dial(t)
	if err != nil {
		return nil, mqtt.Connack{}, err
	}
	d.id = o.ClientID
	if _, err := d.Write(mqtt.AppendConnect(nil, o)); err != nil {
		return d, mqtt.Connack{}, fmt.Errorf("write CONNECT: %w", err)
	}
	packet, err := d.packet()
	if err != nil {
		return d, mqtt.Connack{}, fmt.Errorf("wait for CONNACK: %w", err)
	}
	ack, _, err := mqtt.ParseConnack(packet, max(o.Version, mqtt.V31))
	return d, ack, err
}

// join connects with a 3.1.1 clean session and must be let in.
func (w way) join(t testing.TB, id string) *device {
	t.Helper()
	d, err := w.tryJoin(t, id)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (w way) tryJoin(t testing.TB, id string) (*device, error) {
	d, ack, err := w.connect(t, mqtt.ConnectOptions{Version: mqtt.V311, ClientID: id, CleanStart: true})
	if err == nil && !ack.Accepted() {
		err = fmt.Errorf("refused with 0x%02x", ack.Code)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", id, err)
	}
	return d, nil
}

// packet reads one whole packet.
func (d *device) packet() ([]byte, error) {
	var head []byte
	for {
		b, err := d.r.ReadByte()
		if err != nil {
			return head, err
		}
		head = append(head, b)
		_, _, remaining, n, err := mqtt.ParseFixedHeader(head)
		if errors.Is(err, mqtt.ErrShort) {
			continue
		}
		if err != nil {
			return head, err
		}
		whole := slices.Concat(head, make([]byte, remaining))
		_, err = io.ReadFull(d.r, whole[n:])
		return whole, err
	}
}

// ping proves that the way to the broker and back is there.
func (d *device) ping() error {
	if _, err := d.Write([]byte{byte(mqtt.TypePingreq) << 4, 0}); err != nil {
		return fmt.Errorf("%s: write PINGREQ: %w", d.id, err)
	}
	p, err := d.packet()
	if err != nil {
		return fmt.Errorf("%s: wait for PINGRESP: %w", d.id, err)
	}
	if mqtt.PacketType(p[0]>>4) != mqtt.TypePingresp {
		return fmt.Errorf("%s: % x in place of PINGRESP", d.id, p)
	}
	return nil
}

// subscribe subscribes at QoS 0.
func (d *device) subscribe(t *testing.T, filter string) {
	t.Helper()
	body := append(binary.BigEndian.AppendUint16([]byte{0, 1}, uint16(len(filter))), filter...)
	body = append(body, 0)
	if _, err := d.Write(append([]byte{byte(mqtt.TypeSubscribe)<<4 | 2, byte(len(body))}, body...)); err != nil {
		t.Fatal(err)
	}
	if p, err := d.packet(); err != nil || mqtt.PacketType(p[0]>>4) != mqtt.TypeSuback {
		t.Fatalf("% x, %v in place of SUBACK", p, err)
	}
}

// publish publishes at QoS 0.
func (d *device) publish(t *testing.T, topic, payload string) {
	t.Helper()
	body := append(binary.BigEndian.AppendUint16(nil, uint16(len(topic))), topic+payload...)
	if _, err := d.Write(append([]byte{byte(mqtt.TypePublish) << 4, byte(len(body))}, body...)); err != nil {
		t.Fatal(err)
	}
}

// message waits for a PUBLISH at QoS 0.
func (d *device) message(t *testing.T) (topic, payload string) {
	t.Helper()
	p, err := d.packet()
	if err != nil || mqtt.PacketType(p[0]>>4) != mqtt.TypePublish {
		t.Fatalf("% x, %v in place of PUBLISH", p, err)
	}
	_, _, _, n, _ := mqtt.ParseFixedHeader(p)
	size := n + 2 + int(binary.BigEndian.Uint16(p[n:]))
	return string(p[n+2 : size]), string(p[size:])
}

// leave says DISCONNECT and closes, as a client should.
func (d *device) leave() {
	_, _ = d.Write(mqtt.AppendDisconnect(nil, mqtt.V311, mqtt.Success))
	d.Close()
}

// reset breaks off with RST, as a device does that loses its power and is
// asked again.
func (d *device) reset() {
	_ = d.socket.SetLinger(0)
	d.socket.Close()
}

// end waits for the connection to end and says how.
func (d *device) end() error {
	_, err := io.Copy(io.Discard, d.r)
	return err
}

// isOver says whether an error is of a connection that has ended, by whatever
// means.
func isOver(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
