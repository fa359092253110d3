// Tells the story that brokerclients_test.go expects, a line for each part, and
// ends with exit code 0. Any other outcome is an error on stderr and exit code 1.
//
//   node story.js HOST:PORT MQTT-LEVEL NAME [CA-FILE [CERT-FILE KEY-FILE]]
import { readFileSync } from 'node:fs'
import mqtt from 'mqtt'

const [address, level, name, ca, cert, key] = process.argv.slice(2)
const file = (path) => path ? readFileSync(path) : undefined

function die (what, err) {
  console.error(what, err)
  process.exit(1)
}
setTimeout(() => die('no end after', '20 s'), 20_000).unref()

// come gives a connected client that has subscribed to a filter at QoS 2.
async function come (who, filter, { keep = false, will } = {}) {
  const client = mqtt.connect((ca ? 'mqtts://' : 'mqtt://') + address, {
    clientId: name + '-' + who,
    protocolVersion: Number(level),
    protocolId: level === '3' ? 'MQIsdp' : 'MQTT',
    ca: file(ca),
    cert: file(cert),
    key: file(key),
    clean: !keep,
    properties: level === '5' ? { sessionExpiryInterval: keep ? 3600 : 0 } : undefined,
    will: will && { topic: will, payload: Buffer.from('gone'), qos: 0, retain: false },
    reconnectPeriod: 0
  })
  // Messages of a kept session come right behind CONNACK.
  const inbox = []
  const waiting = []
  client.on('message', (topic, payload, packet) => {
    const m = { topic, payload, qos: packet.qos, retain: packet.retain }
    if (waiting.length > 0) waiting.shift()(m)
    else inbox.push(m)
  })
  const next = async () => inbox.length > 0 ? inbox.shift() : await new Promise((resolve) => waiting.push(resolve))
  // hear gives the next message; with a topic, those on others are passed over.
  client.hear = async (qos, topic) => {
    let m = await next()
    while (topic && m.topic !== topic) m = await next()
    if (qos !== undefined && m.qos !== qos) die(`QoS ${m.qos} in place of`, qos)
    return m
  }
  client.on('error', (err) => die('connection:', err))
  await new Promise((resolve) => client.once('connect', resolve))
  await client.subscribeAsync(filter, { qos: 2 })
  return client
}

try {
  const watcher = await come('watcher', name + '/will')
  const keeper = await come('keeper', name + '/+/in/#', { keep: true, will: name + '/will' })
  const other = await come('other', name + '/none')

  for (const qos of [0, 1, 2]) {
    await other.publishAsync(`${name}/${qos}/in/x`, `at QoS ${qos}`, { qos })
    console.log(String((await keeper.hear(qos)).payload))
  }

  const big = Buffer.from('0123456789'.repeat(50_000))
  await other.publishAsync(name + '/big/in', big, { qos: 1 })
  const heard = (await keeper.hear(1)).payload
  console.log('big:', heard.equals(big) ? heard.length : 'not the same')

  keeper.stream.destroy() // without DISCONNECT
  console.log('will:', String((await watcher.hear()).payload))

  for (let n = 0; n < 10; n++) {
    await other.publishAsync(name + '/missed/in', String(n), { qos: n < 5 ? 1 : 2 })
  }
  const back = await come('keeper', name + '/+/in/#', { keep: true })
  // What it had not acknowledged when it vanished comes again before these.
  const missed = []
  for (let n = 0; n < 10; n++) missed.push(String((await back.hear(n < 5 ? 1 : 2, name + '/missed/in')).payload))
  console.log('missed:', ...missed)

  for (const payload of ['old', 'known']) {
    await other.publishAsync(name + '/last', payload, { qos: 1, retain: true })
  }
  const late = await (await come('late', name + '/last')).hear()
  console.log(late.retain ? 'retained:' : 'not retained:', String(late.payload))
  process.exit(0)
} catch (err) {
  die('failed:', err)
}
