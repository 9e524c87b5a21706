// Large payloads, on an engine whose messages may have 8 MiB. What is larger fails its own call and nothing
// else.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { failure, functions, settled, worker } from './kit.mjs'

const MiB = 1 << 20
const host = worker('large-host')
const caller = worker('large-caller')
host.registerFunction('large::size', async ({ s }) => s.length)
host.registerFunction('large::echo', async (input) => input)
host.registerFunction('large::make', async ({ n }) => 'x'.repeat(n))
await Promise.all([settled(host), settled(caller)])
const ids = () => [host.workerId, caller.workerId]

test('5 MB go there', async () => {
  assert.equal(await caller.trigger({ function_id: 'large::size', payload: { s: 'x'.repeat(5_000_000) } }), 5_000_000)
})

test('5 MB come back', async () => {
  assert.equal((await caller.trigger({ function_id: 'large::make', payload: { n: 5_000_000 } })).length, 5_000_000)
})

test('5 MB go both ways and stay what they were', async () => {
  const value = Array.from({ length: 50_000 }, (_, i) => ({ i, text: `\u{1f680}${'y'.repeat(60)}"\\${i}`, tail: 'z'.repeat(20) }))
  assert.ok(JSON.stringify(value).length > 5_000_000)
  assert.deepEqual(await caller.trigger({ function_id: 'large::echo', payload: value }), value)
})

test('5 MB to a function of the engine fail or answer, and harm nothing', async () => {
  const list = await functions(caller, { s: 'x'.repeat(5_000_000) })
  assert.ok(list.some((f) => f.function_id === 'large::size'))
})

test('small calls are answered while large ones are under way', async () => {
  const large = Promise.all(
    Array.from({ length: 4 }, () => caller.trigger({ function_id: 'large::make', payload: { n: 1_500_000 } })),
  )
  for (let i = 0; i < 20; i++) {
    assert.equal(await caller.trigger({ function_id: 'large::size', payload: { s: 'abc' } }), 3)
  }
  assert.deepEqual((await large).map((s) => s.length), [1_500_000, 1_500_000, 1_500_000, 1_500_000])
})

test('a payload over the limit fails its call alone', async () => {
  const before = ids()
  const [error, fine] = await Promise.all([
    failure(caller.trigger({ function_id: 'large::size', payload: { s: 'x'.repeat(9 * MiB) } })),
    caller.trigger({ function_id: 'large::size', payload: { s: 'abc' } }),
  ])
  assert.equal(error.code, 'MESSAGE_TOO_LARGE')
  assert.match(error.message, /8388608|8 ?MiB/)
  assert.equal(fine, 3)
  assert.deepEqual(ids(), before, 'nobody had to connect again')
})

test('a result over the limit fails its call alone', async () => {
  const before = ids()
  const [error, fine] = await Promise.all([
    failure(caller.trigger({ function_id: 'large::make', payload: { n: 9 * MiB } })),
    caller.trigger({ function_id: 'large::size', payload: { s: 'abc' } }),
  ])
  assert.equal(error.code, 'MESSAGE_TOO_LARGE')
  assert.equal(fine, 3)
  assert.deepEqual(ids(), before, 'nobody had to connect again')
  assert.equal(await caller.trigger({ function_id: 'large::size', payload: { s: 'abcd' } }), 4)
})
