// Calls that are made before the connection stands. The SDK sends them ahead of its introduction.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { TriggerAction } from 'iii-sdk'
import { failure, settled, worker } from './kit.mjs'

test('a call of its own function before the connection is served', async () => {
  const w = worker('early-self')
  w.registerFunction('early::self', async ({ n }) => n + 1)
  assert.equal(await w.trigger({ function_id: 'early::self', payload: { n: 1 } }), 2)
})

test('early calls are served in the order of their frames, after the registrations', async () => {
  const w = worker('early-order')
  const seen = []
  w.registerFunction('early::order', async (n) => void seen.push(n))
  const calls = Array.from({ length: 50 }, (_, n) => w.trigger({ function_id: 'early::order', payload: n }))
  await Promise.all(calls)
  assert.deepEqual(seen, Array.from({ length: 50 }, (_, n) => n))
})

test('an early void call arrives', async () => {
  const w = worker('early-void')
  const ran = new Promise((resolve) => w.registerFunction('early::void', async (input) => resolve(input)))
  await w.trigger({ function_id: 'early::void', payload: 'a string payload', action: TriggerAction.Void() })
  assert.equal(await ran, 'a string payload')
})

test('an early call of what is not there fails with its own code', async () => {
  const w = worker('early-missing')
  assert.equal((await failure(w.trigger({ function_id: 'early::missing', payload: {} }))).code, 'function_not_found')
})

test('an early call reaches a function of another worker', async () => {
  const host = worker('early-host')
  host.registerFunction('early::far', async () => 'far')
  await settled(host)
  const caller = worker('early-caller')
  assert.equal(await caller.trigger({ function_id: 'early::far', payload: {} }), 'far')
})

test('a function registered at once after connecting serves at once', async () => {
  const host = worker('late-host')
  await settled(host)
  const caller = worker('late-caller')
  await settled(caller)
  for (let i = 0; i < 20; i++) {
    host.registerFunction(`late::f${i}`, async () => i)
    await settled(host)
    assert.equal(await caller.trigger({ function_id: `late::f${i}` }), i)
  }
})
