"""Debian's python3-paho-mqtt as a client of the end-to-end tests.

Tells the story that brokerclients_test.go expects, a line for each part. Any
other outcome is an error on stderr and exit code 1.

    story.py HOST:PORT MQTT-LEVEL NAME [CA-FILE [CERT-FILE KEY-FILE]]
"""

import queue
import ssl
import sys

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

PATIENCE = 20
address, level, name = sys.argv[1:4]
ca, cert, key = (sys.argv[4:] + ["", "", ""])[:3]
host, port = address.rsplit(":", 1)
V5 = level == "5"


class Client:
    """A connected client that has subscribed to a filter at QoS 2."""

    def __init__(self, who, topic_filter, keep=False, will=None):
        self.messages, self.events = queue.Queue(), queue.Queue()
        version = {"3": mqtt.MQTTv31, "4": mqtt.MQTTv311, "5": mqtt.MQTTv5}[level]
        more = {} if V5 else {"clean_session": not keep}
        self.mqtt = mqtt.Client(name + "-" + who, protocol=version, **more)
        self.mqtt.on_message = lambda c, u, m: self.messages.put(m)
        self.mqtt.on_connect = lambda c, u, flags, rc, *p: self.events.put(("connected", rc))
        self.mqtt.on_subscribe = lambda c, u, mid, *p: self.events.put(("subscribed", 0))
        if ca:
            self.mqtt.tls_set(ca, cert or None, key or None, tls_version=ssl.PROTOCOL_TLS_CLIENT)
        if will:
            self.mqtt.will_set(will, "gone")
        more = {}
        if V5:
            more["clean_start"] = not keep
            more["properties"] = Properties(PacketTypes.CONNECT)
            more["properties"].SessionExpiryInterval = 3600 if keep else 0
        self.mqtt.connect(host, int(port), **more)
        self.mqtt.loop_start()
        self.expect("connected")
        self.mqtt.subscribe(topic_filter, 2)
        self.expect("subscribed")

    def expect(self, what):
        event, code = self.events.get(timeout=PATIENCE)
        if event != what or code != 0:
            sys.exit(f"{event} {code}, want {what}")

    def send(self, topic, payload, qos=1, retain=False):
        sent = self.mqtt.publish(topic, payload, qos, retain)
        sent.wait_for_publish(PATIENCE)
        if not sent.is_published():
            sys.exit(f"{topic} is not acknowledged")

    def hear(self, qos=None, topic=None):
        """The next message; with a topic, those on others are passed over."""
        m = self.messages.get(timeout=PATIENCE)
        while topic and m.topic != topic:
            m = self.messages.get(timeout=PATIENCE)
        if qos is not None and m.qos != qos:
            sys.exit(f"{m.topic} at QoS {m.qos}, want {qos}")
        return m

    def vanish(self):
        """Ends without DISCONNECT."""
        self.mqtt.loop_stop()
        self.mqtt.socket().close()


watcher = Client("watcher", name + "/will")
keeper = Client("keeper", name + "/+/in/#", keep=True, will=name + "/will")
other = Client("other", name + "/none")

for qos in range(3):
    other.send(f"{name}/{qos}/in/x", f"at QoS {qos}", qos)
    print(keeper.hear(qos).payload.decode())

big = b"0123456789" * 50_000
other.send(name + "/big/in", big)
heard = keeper.hear(1).payload
print("big:", len(heard) if heard == big else "not the same")

keeper.vanish()
print("will:", watcher.hear().payload.decode())

for n in range(10):
    other.send(name + "/missed/in", str(n), 1 + n // 5)
back = Client("keeper", name + "/+/in/#", keep=True)
# What it had not acknowledged when it vanished comes again before these.
missed = (back.hear(1 + n // 5, name + "/missed/in") for n in range(10))
print("missed:", *(m.payload.decode() for m in missed))

other.send(name + "/last", "old", retain=True)
other.send(name + "/last", "known", retain=True)
late = Client("late", name + "/last").hear()
print("retained:" if late.retain else "not retained:", late.payload.decode())
