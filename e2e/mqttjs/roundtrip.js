// Connects to the URL given, subscribes, publishes one message at each QoS and
// waits for each to come back. Says "back: QOS PAYLOAD" for each, and ends with
// exit code 0. Any other outcome is an error on stderr and exit code 1.
//
//   node roundtrip.js URL MQTT-LEVEL TOPIC [CA-FILE]
import { readFileSync } from 'node:fs'
import mqtt from 'mqtt'

const [url, level, topic, ca] = process.argv.slice(2)

function die (what, err) {
  console.error(what, err)
  process.exit(1)
}
setTimeout(() => die('no end after', '20 s'), 20_000).unref()

try {
  const client = await mqtt.connectAsync(url, {
    protocolVersion: Number(level),
    ca: ca && readFileSync(ca),
    reconnectPeriod: 0
  }, false)
  client.on('error', (err) => die('connection:', err))
  const back = []
  const all = new Promise((resolve) => {
    client.on('message', (_, payload, packet) => {
      back.push(`back: ${packet.qos} ${payload}`)
      if (back.length === 3) resolve()
    })
  })
  await client.subscribeAsync(topic, { qos: 2 })
  for (const qos of [0, 1, 2]) {
    await client.publishAsync(topic, `at QoS ${qos}`, { qos })
  }
  await all
  await client.endAsync()
  console.log(back.join('\n'))
} catch (err) {
  die('failed:', err)
}
