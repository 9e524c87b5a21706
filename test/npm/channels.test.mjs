// Channels with the public SDK: pipes for bytes and text from one worker to another.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { PassThrough, Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { test } from 'node:test'
import { createChannel } from 'iii-sdk/helpers'
import { WebSocket } from 'ws'
import { eventually, failure, lever, settled, straight, worker } from './kit.mjs'

const MiB = 1 << 20
const a = worker('channel-a')
const b = worker('channel-b')

/** Reads a live reader to its end: the bytes, and the texts that came between. */
async function drain(reader) {
  const texts = []
  reader.onMessage((text) => texts.push(text))
  const bytes = await reader.readAll()
  return { length: bytes.length, sha: sha(bytes), texts }
}

const sha = (bytes) => createHash('sha256').update(bytes).digest('hex')
const noise = (n) => Buffer.from(Uint8Array.from({ length: n }, (_, i) => (i * 2654435761) >>> 13))

b.registerFunction('io::drain', async ({ reader }) => drain(reader))
b.registerFunction('io::kinds', async (input) => describe(input))
b.registerFunction('io::fill', async ({ writer, n }) => {
  writer.stream.end(noise(n))
  await once(writer.stream, 'finish')
  return n
})
await Promise.all([settled(a), settled(b)])

/** The shape of a payload, with live ends in the place of refs. */
function describe(v) {
  if (v?.stream instanceof Readable) return 'reader'
  if (v?.sendMessage) return 'writer'
  if (Array.isArray(v)) return v.map(describe)
  if (v && typeof v === 'object') return Object.fromEntries(Object.entries(v).map(([k, x]) => [k, describe(x)]))
  return v
}

/** A bare socket to one end. */
function end(ref, { key = ref.access_key, dir = ref.direction } = {}) {
  const socket = new WebSocket(`${straight}/ws/channels/${ref.channel_id}?key=${key}&dir=${dir}`)
  const messages = []
  socket.on('message', (data, binary) => messages.push(binary ? data.length : data.toString()))
  const open = new Promise((resolve, reject) => socket.on('open', resolve).on('error', reject))
  open.catch(() => {})
  const closed = new Promise((resolve) => socket.on('close', (code, reason) => resolve([code, reason.toString()])))
  return Object.assign(socket, { open, closed, messages })
}

test('a channel is two refs with keys that nobody guesses', async () => {
  const { writerRef, readerRef } = await createChannel(a)
  const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/
  for (const ref of [writerRef, readerRef]) {
    assert.match(ref.channel_id, uuid)
    assert.match(ref.access_key, uuid)
  }
  assert.equal(writerRef.channel_id, readerRef.channel_id)
  assert.deepEqual([writerRef.direction, readerRef.direction], ['write', 'read'])
})

test('bytes and text written in one process are read in another handler', async () => {
  const { writer, readerRef } = await createChannel(a, 8)
  const answer = a.trigger({ function_id: 'io::drain', payload: { reader: readerRef } })
  writer.sendMessage('hello-text')
  const bytes = noise(150_000)
  writer.stream.end(bytes)
  assert.deepEqual(await answer, { length: 150_000, sha: sha(bytes), texts: ['hello-text'] })
})

test('text and bytes keep their order', async () => {
  const { writer, readerRef } = await createChannel(a)
  const reader = end(readerRef)
  await reader.open
  const want = []
  for (let i = 1; i <= 200; i++) {
    if (i % 3) {
      writer.sendMessage(`text ${i}`)
      want.push(`text ${i}`)
    } else {
      await new Promise((resolve, reject) => writer.stream.write(Buffer.alloc(i), (e) => (e ? reject(e) : resolve())))
      want.push(i)
    }
  }
  writer.close()
  assert.deepEqual(await reader.closed, [1000, 'channel_close'])
  assert.deepEqual(reader.messages, want)
})

test('every kind of text arrives as it was sent', async () => {
  const { writer, readerRef } = await createChannel(a)
  const reader = end(readerRef)
  const texts = ['', ' ', '{"type":"ping"}', 'emoji \u{1f680}', 'nul \u0000', 'x'.repeat(300_000)]
  for (const text of texts) writer.sendMessage(text)
  writer.close()
  await reader.closed
  assert.deepEqual(reader.messages, texts)
})

test('a handler writes to its caller', async () => {
  const { reader, writerRef } = await createChannel(a)
  const [got, n] = await Promise.all([
    reader.readAll(),
    a.trigger({ function_id: 'io::fill', payload: { writer: writerRef, n: 200_000 } }),
  ])
  assert.equal(n, 200_000)
  assert.ok(got.equals(noise(200_000)))
})

test('what was written before anybody reads waits for the reader', async () => {
  const { writer, reader } = await createChannel(a)
  writer.stream.end(noise(100_000))
  await once(writer.stream, 'finish')
  assert.ok((await reader.readAll()).equals(noise(100_000)))
})

test('a stream without bytes is a stream that ends', async () => {
  const { writer, readerRef } = await createChannel(a)
  const answer = a.trigger({ function_id: 'io::drain', payload: { reader: readerRef } })
  writer.sendMessage('only this')
  writer.close()
  assert.deepEqual(await answer, { length: 0, sha: sha(Buffer.alloc(0)), texts: ['only this'] })
})

/** Bytes that the engine has taken from writers and not passed on to a reader's socket. */
async function held() {
  const page = await lever('metrics')
  const [, received] = page.match(/^plinth_channel_bytes_received_total (\d+)$/m)
  const [, sent] = page.match(/^plinth_channel_bytes_sent_total (\d+)$/m)
  const [, lost] = page.match(/^plinth_channel_bytes_lost_total (\d+)$/m)
  return received - sent - lost
}

test('5 MB go through a reader that takes its time, and the engine holds little of them', async () => {
  const { writer, reader } = await createChannel(a, 4)
  const bytes = noise(5 * MiB)
  const before = await held()
  writer.stream.end(bytes)
  const parts = []
  for await (const part of reader.stream) {
    parts.push(part)
    if (parts.length % 8 === 0) assert.ok((await held()) - before <= 2 * MiB, 'asking takes its time, too')
  }
  assert.equal(sha(Buffer.concat(parts)), sha(bytes))
})

test('a writer whose reader does not read is held back, and goes on later', async () => {
  const { writerRef, readerRef } = await createChannel(a, 4)
  const writer = end(writerRef)
  const reader = end(readerRef)
  await Promise.all([writer.open, reader.open])
  reader.pause()
  const total = 32 * MiB
  for (let sent = 0; sent < total; sent += MiB) writer.send(Buffer.alloc(MiB))
  writer.close(1000, 'stream_complete')
  // Sockets take some of it on either side, and the engine a little; the rest stays here.
  let last = -1
  await eventually('nothing moves any more', () => {
    const stuck = writer.bufferedAmount === last
    last = writer.bufferedAmount
    return stuck && last < total
  })
  assert.ok(last > 0, `all of ${total} bytes left the writer though nobody reads`)
  reader.resume()
  assert.deepEqual(await reader.closed, [1000, 'stream_complete'])
  assert.equal(reader.messages.reduce((sum, n) => sum + n, 0), total)
})

test('refs anywhere in a payload become live ends at the other worker', async () => {
  const { writerRef, readerRef } = await createChannel(a)
  const payload = { deep: [{ er: [readerRef, { w: writerRef }] }, 'x', null], top: writerRef, n: 1 }
  assert.deepEqual(await a.trigger({ function_id: 'io::kinds', payload }), {
    deep: [{ er: ['reader', { w: 'writer' }] }, 'x', null],
    top: 'writer',
    n: 1,
  })
})

test('a ref in a result stays a ref', async () => {
  const { readerRef } = await createChannel(a)
  b.registerFunction('io::giveback', async () => ({ ref: readerRef }))
  await settled(b)
  assert.deepEqual(await a.trigger({ function_id: 'io::giveback', payload: {} }), { ref: readerRef })
})

test('many channels at once do not mix', async () => {
  const all = await Promise.all(Array.from({ length: 20 }, () => createChannel(a)))
  const answers = all.map(({ readerRef }) => a.trigger({ function_id: 'io::drain', payload: { reader: readerRef } }))
  for (const [i, { writer }] of all.entries()) {
    writer.sendMessage(`channel ${i}`)
    writer.stream.end(noise(10_000 + i))
  }
  for (const [i, answer] of (await Promise.all(answers)).entries()) {
    assert.deepEqual(answer, { length: 10_000 + i, sha: sha(noise(10_000 + i)), texts: [`channel ${i}`] })
  }
})

test('a channel passes through a pipeline of streams', async () => {
  const { writer, readerRef } = await createChannel(a)
  const answer = a.trigger({ function_id: 'io::drain', payload: { reader: readerRef } })
  await pipeline(Readable.from([noise(70_000), noise(30_000)]), new PassThrough(), writer.stream)
  const all = Buffer.concat([noise(70_000), noise(30_000)])
  assert.deepEqual(await answer, { length: 100_000, sha: sha(all), texts: [] })
})

test('an unknown channel and a wrong key are not found', async () => {
  const { writerRef, readerRef } = await createChannel(a)
  const wrong = [
    end({ ...writerRef, channel_id: crypto.randomUUID() }),
    end(writerRef, { key: crypto.randomUUID() }),
    end(writerRef, { key: '' }),
    end(readerRef, { dir: 'write' }),
  ]
  for (const socket of wrong) await assert.rejects(socket.open, /404/)
  const right = end(writerRef)
  await right.open
  right.close()
})

test('the live reader of a wrong ref fails its stream', async () => {
  const { readerRef } = await createChannel(a)
  b.registerFunction('io::wrong', async ({ reader }) => {
    try {
      await reader.readAll()
      return 'read'
    } catch (error) {
      return error.message
    }
  })
  await settled(b)
  const forged = { ...readerRef, access_key: crypto.randomUUID() }
  assert.match(await a.trigger({ function_id: 'io::wrong', payload: { reader: forged } }), /404/)
})

test('an end can be taken once', async () => {
  const { writerRef, readerRef } = await createChannel(a)
  const [writer, reader] = [end(writerRef), end(readerRef)]
  await Promise.all([writer.open, reader.open])
  for (const ref of [writerRef, readerRef]) {
    const second = end(ref)
    await second.open // the engine accepts, and closes at once
    assert.notEqual((await second.closed)[0], 1000)
  }
  writer.send('still mine')
  writer.close(1000, 'channel_close')
  assert.deepEqual(await reader.closed, [1000, 'channel_close'])
  assert.deepEqual(reader.messages, ['still mine'])
})

test('a reader that goes away ends its writer', async () => {
  const { writerRef, readerRef } = await createChannel(a)
  const [writer, reader] = [end(writerRef), end(readerRef)]
  await Promise.all([writer.open, reader.open])
  reader.terminate()
  const [code] = await writer.closed
  assert.notEqual(code, 1000)
})

test('the SDK fails a write to a reader that is gone', async () => {
  const { writer, readerRef } = await createChannel(a)
  const reader = end(readerRef)
  writer.stream.on('error', () => {})
  writer.stream.write('first')
  await eventually('it arrived', () => reader.messages.length === 1)
  reader.terminate()
  await eventually('the stream is destroyed', () => writer.stream.destroyed)
})

test('a writer that is cut off does not look complete to its reader', async () => {
  const { writerRef, readerRef } = await createChannel(a)
  const [writer, reader] = [end(writerRef), end(readerRef)]
  await Promise.all([writer.open, reader.open])
  writer.send(Buffer.alloc(10))
  await eventually('it arrived', () => reader.messages.length === 1)
  writer.terminate()
  assert.notEqual((await reader.closed)[0], 1000)
})

test('a channel goes with the worker that made it', async () => {
  const maker = worker('channel-maker')
  const { writerRef, readerRef } = await createChannel(maker)
  const [writer, reader] = [end(writerRef), end(readerRef)]
  await Promise.all([writer.open, reader.open])
  await maker.close()
  assert.notEqual((await writer.closed)[0], 1000)
  assert.notEqual((await reader.closed)[0], 1000)
  await assert.rejects(end(readerRef).open, /404/)
})

test('a bad buffer size fails its call', async () => {
  for (const buffer_size of [-1, 'many', 1.5]) {
    assert.ok((await failure(a.trigger({ function_id: 'engine::channels::create', payload: { buffer_size } }))).code)
  }
  assert.ok((await a.trigger({ function_id: 'engine::channels::create' })).writer)
  assert.ok((await createChannel(a, 100_000)).writer, 'more than 1,024 is 1,024')
})

test('calls are answered while a channel is busy', async () => {
  const { writer, readerRef } = await createChannel(a)
  const answer = a.trigger({ function_id: 'io::drain', payload: { reader: readerRef } })
  writer.stream.end(Buffer.alloc(20 * MiB))
  for (let i = 0; i < 50; i++) await settled(a)
  assert.equal((await answer).length, 20 * MiB)
})
