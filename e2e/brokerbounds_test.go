package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mqttlb/mqttlb/e2e/rig"
	"github.com/mqttlb/mqttlb/pkg/mqtt"
)

// A disk that is full, to the last byte and by another's doing, costs those who
// want something stored; the others go on, and all do when there is room again.
func TestAFullDiskRefusesWhatIsToBeKeptAndNothingElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=200m"); err != nil {
		t.Skipf("no small disk can be mounted here: %v", err)
	}
	t.Cleanup(func() { // after the broker's end
		if err := unix.Unmount(disk, 0); err != nil {
			t.Errorf("unmount %s: %v", disk, err)
		}
	})
	b := startBroker(t, rig.BrokerOptions{Data: filepath.Join(disk, "data"), Extra: "durability: always\n"})
	w := way{addr: b.Addr()}
	keeper, _ := w.keeper(t, "keeper")
	keeper.wants(t, 1, "kept/#")
	publisher := w.guest(t, "publisher")
	if r := publisher.says(t, rig.Message{Topic: "kept/before", QoS: 1}); r >= 0x80 {
		t.Fatalf("on an empty disk: %v", r)
	}
	listener := w.guest(t, "listener")
	listener.wants(t, 0, "live")

	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	refused := 0
	await(t, "a refusal on the full disk", func() bool {
		refused++
		return publisher.says(t, rig.Message{Topic: "kept/full", Payload: "x", QoS: 1}) == mqtt.QuotaExceeded
	})
	stored := refused - 1 // before the broker looked at the disk again
	for qos := range 3 {
		r := publisher.says(t, rig.Message{Topic: "live", Payload: fmt.Sprint(qos), QoS: qos})
		if want := []mqtt.Reason{mqtt.Success, mqtt.QuotaExceeded, mqtt.QuotaExceeded}[qos]; r != want {
			t.Errorf("QoS %d on a full disk: %v, want %v", qos, r, want)
		}
	}
	if m := listener.hears(t); m.Payload != "0" {
		t.Errorf("%+v came in place of the message at QoS 0", m)
	}
	// 3.x has no word for it but the end of the connection.
	old := w.join(t, "old")
	if _, err := old.Write(mqtt.AppendPublish(nil, mqtt.V311, mqtt.Publish{QoS: 1, PacketID: 1, Topic: []byte("kept/old"), Payload: []byte("x")})); err != nil {
		t.Fatal(err)
	}
	if p, err := old.packet(); !isOver(err) {
		t.Errorf("a 3.1.1 publisher reads % x, %v; want the end", p, err)
	}
	// A session that is to stay can't be kept; one that is not needs no room.
	if _, ack, err := w.connect(t, mqtt.ConnectOptions{Version: mqtt.V5, ClientID: "late", Properties: kept}); err != nil || ack.Reason() != mqtt.ServerUnavailable {
		t.Errorf("a new session on a full disk: %v, %v; want %v", ack.Reason(), err, mqtt.ServerUnavailable)
	}
	if err := w.guest(t, "passing").ping(); err != nil {
		t.Error(err)
	}
	for _, s := range []*speaker{keeper, listener, publisher} {
		for s == keeper && stored >= 0 { // what was stored goes to it, full or not
			if m := s.hears(t); m.Topic == "kept/before" || m.Topic == "kept/full" {
				stored--
			}
		}
		if err := s.ping(); err != nil {
			t.Errorf("on a full disk: %v", err)
		}
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	await(t, "room again", func() bool {
		return publisher.says(t, rig.Message{Topic: "kept/after", Payload: "x", QoS: 1}) < 0x80
	})
	if m := keeper.hears(t); m.Topic != "kept/after" {
		t.Errorf("%+v came when there was room again", m)
	}
	late, _ := w.keeper(t, "late") // its record is stored, the first one since
	late.wants(t, 1, "late")
	if r := publisher.says(t, rig.Message{Topic: "late", QoS: 2}); r >= 0x80 {
		t.Errorf("with room again: %v", r)
	}
	late.hears(t)

	crash(t, b) // and what a full disk has left behind can be read
	restart(t, b)
	if _, ack := w.keeper(t, "late"); !ack.SessionPresent {
		t.Error("a session that was made after the disk was full is gone after a crash")
	}
}

// fill takes what room a disk has.
func fill(t *testing.T, file string) {
	t.Helper()
	f := must(os.Create(file))(t)
	defer f.Close()
	for _, size := range []int{1 << 20, 4096, 1} {
		for {
			if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What is too long is refused by its announcement, in whatever number, and
// costs those who stay within the bounds nothing, and no memory.
func TestMonstersAreRefusedWhileOthersGoOn(t *testing.T) {
	const monsters = 200
	// Without the race detector, which has memory of its own.
	b := startBroker(t, rig.BrokerOptions{Binary: must(rig.BuildBroker())(t), Extra: "log: {level: warn}\n"})
	w := way{addr: b.Addr()}
	good := w.guest(t, "good")
	good.wants(t, 1, "good")
	publisher := w.guest(t, "publisher")
	goOn := func() {
		t.Helper()
		want := rig.Message{Topic: "good", Payload: "still here", QoS: 1}
		if r := publisher.says(t, want); r >= 0x80 {
			t.Fatalf("a good message: %v", r)
		}
		if m := good.hears(t); m != want {
			t.Fatalf("%+v in place of a good message", m)
		}
	}
	goOn()
	before := residentMiB(t, b.PID())

	longTopic := mqtt.AppendPublish(nil, mqtt.V5, mqtt.Publish{QoS: 1, PacketID: 1, Topic: bytes.Repeat([]byte("t"), 65535), Payload: []byte("x")})
	longSubscribe := mqtt.Subscribe{PacketID: 1}
	longSubscribe.Subscriptions = longSubscribe.Subscriptions.Append(mqtt.Subscription{Filter: bytes.Repeat([]byte("f"), 65535)})
	for n := range monsters {
		m := w.guest(t, fmt.Sprint("topic-", n))
		m.send(t, longTopic)
		if r := m.answer(t, mqtt.TypePuback, 1); r != mqtt.TopicNameInvalid {
			t.Fatalf("a topic of 65,535 bytes: %v", r)
		}
		m.send(t, mqtt.AppendSubscribe(nil, m.v, longSubscribe))
		if a, _, err := mqtt.ParseSuback(m.next(t, mqtt.TypeSuback), m.v); err != nil || a.Codes[0] != byte(mqtt.TopicFilterInvalid) {
			t.Fatalf("a filter of 65,535 bytes: % x, %v", a.Codes, err)
		}

		m = w.guest(t, fmt.Sprint("packet-", n))
		m.send(t, append([]byte{byte(mqtt.TypePublish) << 4, 0xff, 0xff, 0xff, 0x7f}, make([]byte, 1000)...)) // 256 MB
		d, _, err := mqtt.ParseDisconnect(m.next(t, mqtt.TypeDisconnect), m.v, mqtt.FromServer)
		if err != nil || d.Reason != mqtt.PacketTooLarge {
			t.Fatalf("a packet announced with 256 MB: %v, %v", d.Reason, err)
		}

		// A CONNECT is refused in its own version, as soon as that is known.
		for level, answer := range map[byte]string{4: "close", 5: "connack=95,close"} {
			first := must(w.dial(t))(t)
			if _, err := first.Write([]byte{byte(mqtt.TypeConnect) << 4, 0xff, 0xff, 0xff, 0x7f, 0, 4, 'M', 'Q', 'T', 'T', level}); err != nil {
				t.Fatal(err)
			}
			if r, err := take(first, mqtt.Version(level)); err != nil || !r.is(answer) {
				t.Fatalf("a CONNECT of level %d announced with 256 MB: %v, %v; want %s", level, r, err, answer)
			}
		}
		if n%20 == 0 {
			goOn()
		}
	}
	goOn()
	// The connections that stay, of those with the long topics, cost a few KB.
	if after := residentMiB(t, b.PID()); after > before+64 {
		t.Errorf("resident memory went from %d to %d MiB", before, after)
	}
}

// residentMiB is the resident memory of a process.
func residentMiB(t *testing.T, pid int) int {
	t.Helper()
	status := must(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(t)
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return must(strconv.Atoi(strings.Fields(rest)[0]))(t) / 1024
		}
	}
	t.Fatalf("no VmRSS of process %d", pid)
	return 0
}
