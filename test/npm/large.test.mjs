// Large payloads. Each is one message.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { functions, settled, worker } from './kit.mjs'

const host = worker('large-host')
const caller = worker('large-caller')
host.registerFunction('large::size', async ({ s }) => s.length)
host.registerFunction('large::echo', async (input) => input)
host.registerFunction('large::make', async ({ n }) => 'x'.repeat(n))
await Promise.all([settled(host), settled(caller)])

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
    Array.from({ length: 4 }, () => caller.trigger({ function_id: 'large::make', payload: { n: 5_000_000 } })),
  )
  for (let i = 0; i < 20; i++) {
    assert.equal(await caller.trigger({ function_id: 'large::size', payload: { s: 'abc' } }), 3)
  }
  assert.deepEqual((await large).map((s) => s.length), [5_000_000, 5_000_000, 5_000_000, 5_000_000])
})
