// Plays what was recorded between the SDK and a stub of an engine (testdata/engine-frames.jsonl) against this
// engine: the frames of the workers are sent as they were, and the engine must answer as the stub did.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { isDeepStrictEqual } from 'node:util'
import { WebSocket } from 'ws'
import { bare, straight } from './kit.mjs'

const file = await readFile(new URL('./testdata/engine-frames.jsonl', import.meta.url), 'utf8')
const recorded = file.trim().split('\n').map((line) => JSON.parse(line))

/** Where this engine is to differ from the stub: by run and seq, with the reason. */
const different = {
  '1 35': 'there is no queue, and the stub only made a receipt up',
  '2 24': 'the engine calls HTTP functions itself: no worker is asked (httpfn.test.mjs)',
  '2 25': 'the same',
  '2 26': 'the same',
  '2 29': 'the stub sent a call without an id, to see what the SDK does',
  '2 30': 'the stub sent an id that is no UUID, to see what the SDK does',
  '2 31': 'the stub sent an answer that nobody waits for, to see what the SDK does',
  '2 32': 'the SDK answers 30',
}
/** Frames that the stub sent to see whether the SDK ignores them. */
const probes = ['registrationrejected', 'observeresult', 'error']

/** The frame without what is not to be compared: ids of this run, traces, the stub's mark of the caller. */
function bones({ invocation_id, traceparent, baggage, message_type, data, ...rest }) {
  if (data && typeof data === 'object') {
    const { _caller_worker_id, ...own } = data
    data = own
  }
  return data === undefined ? rest : { ...rest, data }
}

/** The payload to know a call by; the refs of channels are others in every run. */
const load = (frame) => (frame.function_id === 'io::read' ? undefined : bones(frame).data)

class Player {
  conns = new Map() // by the names of the recording
  ids = new Map() // of calls, refs and workers: the recording's to this run's
  arrived = new Map() // promises of engine frames, by recorded invocation id
  due = []
  wrong = [] // what is not as it was recorded

  /** Puts this run's ids in the place of the recording's. */
  translate(frame) {
    let text = JSON.stringify(frame)
    for (const [old, now] of this.ids) text = text.replaceAll(old, now)
    const f = JSON.parse(text)
    if (typeof f.data?.s === 'string' && f.data.s.includes('chars cut')) f.data.s = 'x'.repeat(5_000_000)
    return f
  }

  /** Has the engine take in what one worker has sent before another one sends, as time did when it was recorded. */
  async turn(conn) {
    if (this.last && this.last !== conn && this.last.socket.readyState === WebSocket.OPEN) {
      await this.last.echo()
      await this.rest()
    }
    this.last = conn
  }

  async send(conn, frame) {
    const asked = frame.type === 'invocationresult' && this.arrived.get(frame.invocation_id)
    if (asked) {
      const call = await asked
      if (!call.invocation_id) return // a void call, which this engine wants no answer to
      this.ids.set(frame.invocation_id, call.invocation_id)
    }
    conn.send(this.translate(frame))
  }

  /** Expects a frame of the engine; what is wrong with it shows in rest(). */
  expect(conn, frame, where) {
    const { type, id, invocation_id, function_id } = frame
    const own = this.arrived.get(invocation_id) === undefined && type === 'invokefunction'
    // Calls of several workers come in any order: one is known by its function and its payload.
    const same = (f) => f.type === type && f.function_id === function_id && isDeepStrictEqual(load(f), load(frame))
    const next = conn.next(own ? same : id !== undefined ? { type, id } : { type, invocation_id })
    if (own) this.arrived.set(invocation_id, next)
    this.due.push(next.then((got) => this.compare(bones(got), frame, where)).catch((e) => this.wrong.push(e)))
  }

  compare(got, frame, where) {
    if (frame.function_id === 'engine::functions::list') {
      const ids = (list) => list.functions.map((f) => f.function_id).sort()
      // This engine lists the same functions, and fills in what they said of themselves.
      return assert.deepEqual(ids(got.result), ids(frame.result), where)
    }
    if (frame.function_id === 'engine::channels::create') {
      for (const end of ['writer', 'reader']) {
        this.ids.set(`${frame.result[end].access_key}:${end}`, got.result[end].access_key)
      }
      this.ids.set(frame.result.writer.channel_id, got.result.writer.channel_id)
      this.refs = got.result
      return assert.deepEqual(Object.keys(got.result.writer).sort(), Object.keys(frame.result.writer).sort(), where)
    }
    if (frame.error?.code === 'function_not_found') {
      assert.equal(got.error.code, frame.error.code, where)
      return assert.match(got.error.message, /no::such/, where)
    }
    if (frame.function_id === 'io::read' && frame.type === 'invokefunction') {
      return assert.equal(got.data.reader.access_key, this.refs.reader.access_key, where)
    }
    assert.deepEqual(got, bones(this.translate(frame)), where)
  }

  /** Waits for all that is due. */
  async rest() {
    const due = this.due
    this.due = []
    await Promise.all(due)
    for (const error of this.wrong) throw error
  }

  async connect(line) {
    const conn = await bare()
    this.ids.set(line.worker_id, conn.hello.worker_id)
    this.conns.set(line.worker_id.slice(0, 8), conn)
  }

  /** One end of the recorded channel. */
  async open(dir) {
    const ref = dir === 'write' ? this.refs.writer : this.refs.reader
    const end = new WebSocket(`${straight}/ws/channels/${ref.channel_id}?key=${ref.access_key}&dir=${dir}`)
    end.messages = []
    end.on('message', (data, binary) => end.messages.push(binary ? data.length : data.toString()))
    end.closed = once(end, 'close')
    await once(end, 'open')
    this[dir] = end
  }

  async note(line) {
    const named = line.note.match(/^worker (\S+) is now "(.*)"$/)
    if (named) this.conns.set(named[2], this.conns.get(named[1].slice(0, 8)))
    else if (line.note === 'worker connect') await this.connect(line)
    else if (line.note === 'otel open') this.otel = await bare({ path: '/otel' })
    else if (line.note.startsWith('stub kicks')) {
      await this.rest()
      this.conns.get('worker-a').socket.terminate()
    } else if (line.note === 'channel open') {
      await this.made()
      await this.open(line.dir)
    } else if (line.note === 'channel writer closed') {
      this.write.close(line.code, line.why)
      const [code, reason] = await this.read.closed
      assert.deepEqual([code, reason.toString()], [line.code, line.why])
      assert.deepEqual(this.read.messages, this.written)
    } else if (line.note === 'worker close' && line.code === 1005) {
      await this.rest()
      await this.conns.get(line.worker).close()
    }
  }

  /** Waits for the answer that has the refs of the channel. */
  async made() {
    while (!this.refs) await this.due.shift()
  }

  async step(line) {
    const where = `run ${line.run}, ${line.seq}: ${JSON.stringify(line.frame ?? line.note ?? line.dir).slice(0, 120)}`
    const conn = this.conns.get(line.worker)
    if (different[`${line.run} ${line.seq}`] || probes.includes(line.frame?.type)) return
    if (line.dir === 'worker->engine') {
      await this.turn(conn)
      if (line.frame.type === 'reattach') return conn.send(this.reattach(line.frame))
      if (line.frame.function_id === 'c::http' && line.frame.type === 'invokefunction') return
      if (line.frame.data?.reader) await this.made()
      return this.send(conn, line.frame.data?.reader ? { ...line.frame, data: { reader: this.refs.reader } } : line.frame)
    }
    if (line.dir === 'engine->worker') {
      if (line.frame.type === 'workerregistered') return assert.ok(conn.hello.reattach_token, where)
      return this.expect(conn, line.frame, where)
    }
    if (line.dir === 'channel write') return this.channel(line)
    if (line.dir === 'otel') return this.otel.send(Buffer.from(line.prefix + line.head))
    if (line.dir === 'ws-ping') {
      conn.socket.ping()
      return once(conn.socket, 'pong')
    }
    await this.note(line)
  }

  written = []
  channel(line) {
    this.written.push(line.binary ? line.bytes : line.text)
    this.write.send(line.binary ? Buffer.alloc(line.bytes) : line.text)
  }

  /** Names the connection before by its id and token of this run. */
  reattach(frame) {
    const before = [...this.conns.values()].find((c) => c.hello.worker_id === this.ids.get(frame.previous_worker_id))
    return { ...frame, previous_worker_id: before.hello.worker_id, reattach_token: before.hello.reattach_token }
  }
}

for (const run of ['1', '2']) {
  test(`the engine answers the workers of run ${run} as they were answered when it was recorded`, async () => {
    const player = new Player()
    const lines = recorded.filter((l) => l.run === run)
    assert.ok(lines.length > 30)
    for (const line of lines) await player.step(line)
    await player.rest()
  })
}
