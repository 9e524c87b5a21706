// Payloads over the limit, on an engine whose messages may have 8 MiB. They fail their own call and nothing else.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { failure, settled, worker } from './kit.mjs'

const MiB = 1 << 20
const host = worker('toolarge-host')
const caller = worker('toolarge-caller')
host.registerFunction('toolarge::size', async ({ s }) => s.length)
host.registerFunction('toolarge::make', async ({ n }) => 'x'.repeat(n))
await Promise.all([settled(host), settled(caller)])
const ids = () => [host.workerId, caller.workerId]

test('a payload over the limit fails its call alone', async () => {
  const before = ids()
  const [error, fine] = await Promise.all([
    failure(caller.trigger({ function_id: 'toolarge::size', payload: { s: 'x'.repeat(9 * MiB) } })),
    caller.trigger({ function_id: 'toolarge::size', payload: { s: 'abc' } }),
  ])
  assert.equal(error.code, 'MESSAGE_TOO_LARGE')
  assert.match(error.message, /8388608|8 ?MiB/)
  assert.equal(fine, 3)
  assert.deepEqual(ids(), before, 'nobody had to connect again')
})

test('a result over the limit fails its call alone', async () => {
  const before = ids()
  const [error, fine] = await Promise.all([
    failure(caller.trigger({ function_id: 'toolarge::make', payload: { n: 9 * MiB } })),
    caller.trigger({ function_id: 'toolarge::size', payload: { s: 'abc' } }),
  ])
  assert.equal(error.code, 'MESSAGE_TOO_LARGE')
  assert.equal(fine, 3)
  assert.deepEqual(ids(), before, 'nobody had to connect again')
  assert.equal(await caller.trigger({ function_id: 'toolarge::size', payload: { s: 'abcd' } }), 4)
})
