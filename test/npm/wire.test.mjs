// The frames themselves, on bare sockets: what the SDK does not show.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bare, settled, worker, workers } from './kit.mjs'

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/
const trace = '4bf92f3577b34da6a3ce929d0e0e4736'
const traceparent = `00-${trace}-00f067aa0ba902b7-01`

async function pair(name) {
  const host = await bare({ name: `${name}-host` })
  const caller = await bare({ name: `${name}-caller` })
  host.send({ type: 'registerfunction', id: `${name}::f` })
  await host.echo()
  const call = async (frame) => {
    caller.send({ type: 'invokefunction', function_id: `${name}::f`, ...frame })
    return host.next({ type: 'invokefunction' })
  }
  return { host, caller, call }
}

test('a worker is greeted before it has said anything', async () => {
  const b = await bare()
  assert.match(b.hello.worker_id, uuid)
  assert.match(b.hello.reattach_token, uuid)
  assert.equal(b.socket.extensions, '', 'no compression was agreed on')
})

test('a ping frame and a control ping are both answered', async () => {
  const b = await bare()
  await b.echo()
  const pong = new Promise((resolve) => b.socket.once('pong', (bytes) => resolve(bytes.toString())))
  b.socket.ping('are you there')
  assert.equal(await pong, 'are you there')
})

test('the keep-alive ping of the SDK is answered', async () => {
  const w = worker('alive')
  await settled(w)
  const pong = new Promise((resolve) => w.ws.once('pong', resolve))
  w.ws.ping() // what its heartbeat does every 20 s
  await pong
})

test('frames that nobody knows, and texts that are no frames, are ignored', async () => {
  const { host, caller, call } = await pair('odd')
  const odd = [
    '', ' \n', '{', '[]', 'null', '"text"', '1', '{}', '{"type":1}', '{"type":"hologram","id":"x"}', '{"type":"pong"}',
    '{"type":"registerfunction"}', '{"type":"registerfunction","id":7}', '{"type":"registerfunction","id":""}',
    '{"type":"invokefunction"}', '{"type":"invokefunction","invocation_id":"x","data":{}}', '{"type":"invocationresult"}',
    '{"type":"invocationresult","invocation_id":"nobody-waits","result":1}', '{"type":"reattach"}', '\u0000',
    '{"type":"reattach","previous_worker_id":"nonsense","reattach_token":"guess"}', '{"type":"unregisterfunction","id":"no::such"}',
    '{"type":"error","error":{"code":"X","message":"y"}}', '{"type":"workerregistered","worker_id":"me"}',
    '{"type":"registrationrejected","code":"X"}', '{"type":"ping"', '{"type":"registerfunction","id":"a::b"} trailing',
    `{"type":"x","deep":${'['.repeat(600)}${']'.repeat(600)}}`, Buffer.from([0xff, 0xfe, 0x00]), Buffer.from('OTLPnot json'),
    Buffer.from('MTRC{}'), Buffer.from('LOGS{"resourceLogs":7}'), Buffer.from(''),
  ]
  for (const b of [host, caller]) {
    for (const frame of odd) b.send(frame)
    await b.echo()
  }
  const frame = await call({ invocation_id: 'still-works', data: 1 })
  host.send({ type: 'invocationresult', invocation_id: frame.invocation_id, function_id: 'odd::f', result: 2 })
  assert.equal((await caller.next({ invocation_id: 'still-works' })).result, 2)
})

test('fields that nobody knows do not hinder a frame', async () => {
  const host = await bare({ name: 'extra-host' })
  host.send({ message_type: 'registerfunction', type: 'registerfunction', id: 'extra::f', hologram: { a: [1, { b: null }] } })
  await host.echo()
  host.send({ type: 'invokefunction', invocation_id: 'i1', function_id: 'extra::f', data: 1, depth: 2, observer_id: 'o' })
  const frame = await host.next({ type: 'invokefunction' })
  assert.equal(frame.data, 1)
})

test('a binary message that holds a frame is one', async () => {
  const b = await bare({ name: 'binary' })
  b.send(Buffer.from('{"type":"ping"}'))
  await b.next({ type: 'pong' })
})

test('the host gets an id of the engine and none of the fields of the first hop', async () => {
  const { host, caller, call } = await pair('hop')
  const frame = await call({ invocation_id: 'my-own-id', data: { a: 1 }, metadata: { t: 1 }, action: null, namespace: 'default' })
  assert.notEqual(frame.invocation_id, 'my-own-id')
  assert.equal(typeof frame.invocation_id, 'string')
  assert.equal(frame.function_id, 'hop::f')
  assert.deepEqual(frame.data, { a: 1 })
  assert.deepEqual(frame.metadata, { t: 1 })
  assert.ok(!('action' in frame) && !('namespace' in frame))
  host.send({ type: 'invocationresult', invocation_id: frame.invocation_id, function_id: 'hop::f', result: { ok: true } })
  const answer = await caller.next({ invocation_id: 'my-own-id' })
  assert.deepEqual([answer.type, answer.function_id, answer.result], ['invocationresult', 'hop::f', { ok: true }])
  assert.ok(!('error' in answer))
})

test('absent and null stay apart on the wire, there and back', async () => {
  const { host, caller, call } = await pair('absent')
  const absent = await call({ invocation_id: 'a' })
  assert.ok(!('data' in absent))
  host.send({ type: 'invocationresult', invocation_id: absent.invocation_id, function_id: 'absent::f' })
  const none = await caller.next({ invocation_id: 'a' })
  assert.ok(!('result' in none) && !('error' in none))
  const given = await call({ invocation_id: 'b', data: null })
  assert.equal(given.data, null)
  assert.ok('data' in given)
  host.send({ type: 'invocationresult', invocation_id: given.invocation_id, function_id: 'absent::f', result: null })
  const answer = await caller.next({ invocation_id: 'b' })
  assert.ok('result' in answer)
  assert.equal(answer.result, null)
})

test('numbers and spelling of a payload pass byte for byte', async () => {
  const { host, caller } = await pair('bytes')
  const data = '{"big":123456789012345678901234567890,"e":1E+2,"z":-0,"s":"\\u00e9\\/","dup":1,"dup":2}'
  const seen = new Promise((resolve) => host.socket.on('message', (bytes) => resolve(bytes.toString())))
  caller.send(`{"type":"invokefunction","function_id":"bytes::f","invocation_id":"x","data":${data}}`)
  assert.ok((await seen).includes(`"data":${data}`))
})

test('a trace goes on through the engine', async () => {
  const { host, caller, call } = await pair('trace')
  const frame = await call({ invocation_id: 't', data: {}, traceparent, baggage: 'k=v,tenant=acme' })
  const [, id, span] = frame.traceparent.split('-')
  assert.equal(id, trace)
  assert.notEqual(span, '00f067aa0ba902b7', "the engine's own span is the parent now")
  assert.match(frame.baggage, /(^|,)k=v(,|$)/)
  assert.match(frame.baggage, /(^|,)tenant=acme(,|$)/)
  assert.match(frame.baggage, /(^|,)iii\.function\.id=trace%3A%3Af(,|$)|(^|,)iii\.function\.id=trace::f(,|$)/)
  host.send({ type: 'invocationresult', invocation_id: frame.invocation_id, function_id: 'trace::f', traceparent: frame.traceparent })
  await caller.next({ invocation_id: 't' })
})

test('a call without a trace starts one, and nonsense is not passed on', async () => {
  const { call } = await pair('fresh')
  const fresh = await call({ invocation_id: 'a', data: {} })
  assert.match(fresh.traceparent, /^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/)
  const nonsense = await call({ invocation_id: 'b', data: {}, traceparent: '00-zz-yy-01' })
  assert.match(nonsense.traceparent, /^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/)
})

test('a void call is not answered, whatever the host says', async () => {
  const { host, caller, call } = await pair('void')
  const frame = await call({ data: 1, action: { type: 'void' } })
  if (frame.invocation_id) {
    host.send({ type: 'invocationresult', invocation_id: frame.invocation_id, function_id: 'void::f', result: 1 })
  }
  await host.echo()
  await caller.echo()
  assert.deepEqual(caller.frames.filter((f) => f.type === 'invocationresult'), [])
})

test('an answer counts once, and only from the worker that was asked', async () => {
  const { host, caller, call } = await pair('once')
  const stranger = await bare({ name: 'once-stranger' })
  const frame = await call({ invocation_id: 'x', data: 1 })
  stranger.send({ type: 'invocationresult', invocation_id: frame.invocation_id, function_id: 'once::f', result: 'forged' })
  await stranger.echo()
  host.send({ type: 'invocationresult', invocation_id: frame.invocation_id, function_id: 'once::f', result: 'first' })
  host.send({ type: 'invocationresult', invocation_id: frame.invocation_id, function_id: 'once::f', result: 'second' })
  await host.echo()
  await caller.echo()
  const answers = caller.frames.filter((f) => f.type === 'invocationresult').map((f) => f.result)
  assert.deepEqual(answers, ['first'])
})

test('two callers may choose the same id', async () => {
  const host = await bare({ name: 'same-host' })
  host.send({ type: 'registerfunction', id: 'same::f' })
  await host.echo()
  const callers = [await bare({ name: 'same-a' }), await bare({ name: 'same-b' })]
  const ids = []
  for (const [i, c] of callers.entries()) {
    c.send({ type: 'invokefunction', function_id: 'same::f', invocation_id: '1', data: i })
    const frame = await host.next({ type: 'invokefunction', data: i })
    ids.push(frame.invocation_id)
  }
  for (const i of [1, 0]) host.send({ type: 'invocationresult', invocation_id: ids[i], function_id: 'same::f', result: i })
  for (const [i, c] of callers.entries()) assert.equal((await c.next({ invocation_id: '1' })).result, i)
})

test('a conflict is told to the worker that comes second', async () => {
  const { host } = await pair('conflict')
  const second = await bare({ name: 'conflict-second' })
  second.send({ type: 'registerfunction', id: 'conflict::f' })
  const refusal = await second.next({ type: 'registrationrejected' })
  assert.equal(refusal.code, 'FUNCTION_NAMESPACE_CONFLICT')
  assert.equal(refusal.function_id, 'conflict::f')
  assert.equal(refusal.namespace, 'default')
  assert.equal(refusal.owner_worker_id, host.hello.worker_id)
})

test('only the right token retires a connection', async () => {
  const { host, caller, call } = await pair('token')
  const thief = await bare()
  thief.send({ type: 'reattach', previous_worker_id: host.hello.worker_id, reattach_token: host.hello.worker_id })
  thief.send({ type: 'reattach', previous_worker_id: host.hello.worker_id })
  await thief.echo()
  await host.echo()
  const frame = await call({ invocation_id: 'x', data: 1 })
  host.send({ type: 'invocationresult', invocation_id: frame.invocation_id, function_id: 'token::f', result: 1 })
  await caller.next({ invocation_id: 'x' })
  const heir = await bare()
  heir.send({ type: 'reattach', previous_worker_id: host.hello.worker_id, reattach_token: host.hello.reattach_token })
  await heir.echo()
  await host.closed
})

test('a namespace is strict, and a blank one is refused', async () => {
  const { caller } = await pair('space')
  const ask = (invocation_id, namespace) =>
    caller.send({ type: 'invokefunction', invocation_id, function_id: 'space::f', data: {}, namespace })
  ask('elsewhere', 'orders')
  assert.equal((await caller.next({ invocation_id: 'elsewhere' })).error.code, 'function_not_found')
  for (const [i, blank] of ['', '  ', null, 7].entries()) {
    ask(`blank-${i}`, blank)
    assert.equal((await caller.next({ invocation_id: `blank-${i}` })).error.code, 'INVALID_NAMESPACE')
  }
})

test('a worker that never introduces itself can call and be called, and has no row', async () => {
  const b = await bare()
  b.send({ type: 'invokefunction', invocation_id: 'h', function_id: 'engine::health::check', data: {} })
  assert.ok((await b.next({ invocation_id: 'h' })).result)
  const w = worker('row-watcher')
  assert.ok(!(await workers(w)).some((r) => r.id === b.hello.worker_id))
})

test('a path that is not there is refused', async () => {
  await assert.rejects(bare({ path: '/no/such/path' }), /404/)
})
