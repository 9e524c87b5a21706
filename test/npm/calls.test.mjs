// Calls between workers, with the public SDK.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { TriggerAction } from 'iii-sdk'
import { failure, lever, settled, straight, worker } from './kit.mjs'

const host = worker('host')
const caller = worker('caller')
const call = (function_id, ...payload) =>
  caller.trigger(payload.length ? { function_id, payload: payload[0] } : { function_id })

host.registerFunction('math::add', async ({ a, b }) => ({ c: a + b }))
host.registerFunction('echo::value', async (input) => input)
host.registerFunction('echo::kind', async (input) => (input === null ? 'null' : typeof input))
host.registerFunction('echo::metadata', async (_, metadata) => ({
  metadata: metadata === undefined ? 'absent' : metadata,
}))
host.registerFunction('fail::error', async () => {
  throw new TypeError('kaboom')
})
host.registerFunction('fail::text', async () => {
  throw 'just a text'
})
host.registerFunction('give::nothing', async () => {})
host.registerFunction('give::null', async () => null)
host.registerFunction('never::ends', () => new Promise(() => {}))
host.registerFunction('slow::echo', async ({ n, ms }) => {
  await new Promise((r) => setTimeout(r, ms))
  return n
})
await settled(host)

test('a function of one worker answers another worker', async () => {
  assert.deepEqual(await call('math::add', { a: 2, b: 3 }), { c: 5 })
})

test('a handler that throws fails its call with code, message and stack', async () => {
  const error = await failure(call('fail::error', {}))
  assert.equal(error.code, 'invocation_failed')
  assert.equal(error.function_id, 'fail::error')
  assert.equal(error.message, 'invocation_failed: kaboom')
  assert.match(error.stacktrace, /TypeError: kaboom[^]*calls\.test\.mjs/)
})

test('a handler that throws a text fails its call as well', async () => {
  const error = await failure(call('fail::text', {}))
  assert.equal(error.code, 'invocation_failed')
  assert.match(error.message, /just a text/)
})

test('an unknown function is named in the error', async () => {
  const error = await failure(call('no::such', {}))
  assert.equal(error.code, 'function_not_found')
  assert.match(error.message, /no::such/)
  assert.match(error.message, /default/)
})

test('a void call runs its function and answers nothing', async () => {
  const ran = new Promise((resolve) => host.registerFunction('void::seen', async (input) => resolve(input)))
  await settled(host)
  const answer = await caller.trigger({
    function_id: 'void::seen',
    payload: { n: 1 },
    action: TriggerAction.Void(),
  })
  assert.equal(answer, undefined)
  assert.deepEqual(await ran, { n: 1 })
})

test('a void call that cannot be served harms nobody', async () => {
  await caller.trigger({ function_id: 'no::such', payload: {}, action: TriggerAction.Void() })
  await caller.trigger({ function_id: 'fail::error', payload: {}, action: TriggerAction.Void() })
  assert.deepEqual(await call('math::add', { a: 1, b: 1 }), { c: 2 })
})

test('a worker may say localhost', async () => {
  const w = worker('by-name', { address: straight.replace('127.0.0.1', 'localhost') })
  assert.deepEqual(await w.trigger({ function_id: 'math::add', payload: { a: 3, b: 4 } }), { c: 7 })
})

test('a worker calls its own function', async () => {
  assert.deepEqual(await host.trigger({ function_id: 'math::add', payload: { a: 5, b: 5 } }), { c: 10 })
})

test('a handler calls another function, and that one another', async () => {
  host.registerFunction('chain::one', async (n) => (await host.trigger({ function_id: 'chain::two', payload: n + 1 })) + 1)
  caller.registerFunction('chain::two', async (n) => (await caller.trigger({ function_id: 'chain::three', payload: n + 10 })) + 10)
  host.registerFunction('chain::three', async (n) => n + 100)
  await Promise.all([settled(host), settled(caller)])
  assert.equal(await call('chain::one', 0), 122)
})

test('no payload and a null payload are kept apart', async () => {
  assert.equal(await call('echo::kind'), 'undefined')
  assert.equal(await call('echo::kind', null), 'null')
})

test('no result and a null result are kept apart', async () => {
  assert.equal(await call('give::nothing', {}), undefined)
  assert.equal(await call('give::null', {}), null)
})

test('every kind of value comes back as it went', async () => {
  const values = [
    0, -1.5, 1e308, 5e-324, 9007199254740991, true, false, '', 'a', [], {}, [null, [[], {}]], { '': { '"': '\\' } },
    'quote " backslash \\ slash / control \u0000\u001f\u007f line \u2028\u2029 emoji \u{1f680} bom \ufeff',
    'a lone surrogate \ud800 stays', { __proto__x: 1, toString: 2, type: 'invokefunction', invocation_id: 'x' },
    '{"type":"invocationresult"}', Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`k${i}`, i])),
  ]
  for (const value of values) assert.deepEqual(await call('echo::value', value), value)
})

test('the payload reaches the handler without members that the caller did not send', async () => {
  assert.deepEqual(await call('echo::value', { only: 'this' }), { only: 'this' })
})

test('metadata travels beside the payload', async () => {
  const metadata = { tenant: 'acme', deep: [1, { two: null }] }
  assert.deepEqual(await caller.trigger({ function_id: 'echo::metadata', payload: {}, metadata }), { metadata })
  assert.deepEqual(await call('echo::metadata', {}), { metadata: 'absent' })
})

test('an enqueued call fails with its documented code while there are no queues', async () => {
  const error = await failure(
    caller.trigger({ function_id: 'math::add', payload: {}, action: TriggerAction.Enqueue({ queue: 'jobs' }) }),
  )
  assert.equal(error.code, 'enqueue_error')
  assert.match(error.message, /queue/i)
})

test('200 calls at once each get their own answer, whatever the order', async () => {
  const answers = await Promise.all(
    Array.from({ length: 200 }, (_, n) => call('slow::echo', { n, ms: (n * 7) % 40 })),
  )
  assert.deepEqual(answers, Array.from({ length: 200 }, (_, n) => n))
})

test('a call that its caller gave up leaves the connection whole', async () => {
  const [gone, late, fine] = await Promise.all([
    failure(caller.trigger({ function_id: 'never::ends', payload: {}, timeoutMs: 50 })),
    failure(caller.trigger({ function_id: 'slow::echo', payload: { n: 1, ms: 100 }, timeoutMs: 50 })),
    call('slow::echo', { n: 2, ms: 150 }),
  ])
  assert.equal(gone.code, 'TIMEOUT')
  assert.equal(late.code, 'TIMEOUT')
  assert.equal(fine, 2)
})

test('a function that was taken back is not found, and can be registered again', async () => {
  const ref = host.registerFunction('come::go', async () => 1)
  await settled(host)
  assert.equal(await call('come::go'), 1)
  ref.unregister()
  await settled(host)
  assert.equal((await failure(call('come::go'))).code, 'function_not_found')
  host.registerFunction('come::go', async () => 2)
  await settled(host)
  assert.equal(await call('come::go'), 2)
})

test('a function may be named with any characters', async () => {
  for (const id of ['späti::größe', 'quote::"x"', 'back::\\slash', 'emoji::\u{1f680}', 'space::a b', 'no-room', 'a::b::c']) {
    host.registerFunction(id, async () => id)
    await settled(host)
    assert.equal(await call(id), id)
  }
})

test('a worker that leaves fails the calls it was serving', async () => {
  const leaver = worker('leaver')
  const began = new Promise((resolve) => leaver.registerFunction('leave::me', () => (resolve(), new Promise(() => {}))))
  await settled(leaver)
  const outcome = failure(call('leave::me', {}))
  await began
  await leaver.close()
  assert.equal((await outcome).code, 'invocation_stopped')
  assert.deepEqual(await call('math::add', { a: 1, b: 2 }), { c: 3 })
})

test('calls are counted for each function', async () => {
  const page = await lever('metrics')
  assert.match(page, /^iii_invocations_total{function_id="fail::error",status="error"} [1-9]/m)
  assert.match(page, /^iii_invocations_total{function_id="math::add",status="ok"} [1-9]/m)
})

test('the names of the engine cannot be taken', async () => {
  host.registerFunction('engine::health::check', async () => 'mine')
  await settled(host)
  const answer = await call('engine::health::check', {})
  assert.notEqual(answer, 'mine')
  assert.equal(typeof answer.status, 'string')
})
