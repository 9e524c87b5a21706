// What the engine says about its workers and functions, and who owns a name.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { eventually, failure, functions, settled, worker, workers } from './kit.mjs'

const one = worker('list-one', { workerDescription: 'hosts things' })
const two = worker('list-two')
one.registerFunction('list::plain', async () => 1)
one.registerFunction('list::rich', async () => 2, {
  description: 'Add',
  request_format: { type: 'object', properties: { a: { type: 'number' } } },
  response_format: { type: 'object' },
  metadata: { team: 'm' },
})
one.registerFunction('list::hidden', async () => 3, { metadata: { internal: true } })
two.registerFunction('list::other', async () => 4)
await Promise.all([settled(one), settled(two)])

test('functions are listed with their worker, namespace, description and metadata', async () => {
  const rows = (await functions(two)).filter((f) => f.function_id.startsWith('list::'))
  assert.deepEqual(
    rows.map((f) => [f.function_id, f.namespace, f.worker_name]),
    [
      ['list::other', 'default', 'list-two'],
      ['list::plain', 'default', 'list-one'],
      ['list::rich', 'default', 'list-one'],
    ],
  )
  const rich = rows.find((f) => f.function_id === 'list::rich')
  assert.equal(rich.description, 'Add')
  assert.deepEqual(rich.metadata, { team: 'm' })
})

test('an internal function is listed when it is asked for, and callable either way', async () => {
  const names = async (query) => (await functions(two, query)).map((f) => f.function_id)
  assert.ok(!(await names({})).includes('list::hidden'))
  assert.ok((await names({ include_internal: true })).includes('list::hidden'))
  assert.equal(await two.trigger({ function_id: 'list::hidden' }), 3)
})

test('a listing without a payload is a listing of everything', async () => {
  const { functions: rows } = await two.trigger({ function_id: 'engine::functions::list' })
  assert.ok(rows.some((f) => f.function_id === 'list::plain'))
})

test('a function is described in full', async () => {
  const f = await two.trigger({ function_id: 'engine::functions::info', payload: { function_id: 'list::rich' } })
  assert.equal(f.function_id, 'list::rich')
  assert.deepEqual(f.request_schema, { type: 'object', properties: { a: { type: 'number' } } })
  assert.deepEqual(f.response_schema, { type: 'object' })
  const error = await failure(
    two.trigger({ function_id: 'engine::functions::info', payload: { function_id: 'list::none' } }),
  )
  assert.equal(error.code, 'NOT_FOUND')
})

test('workers are listed with what they said about themselves', async () => {
  const rows = await workers(two)
  const w = rows.find((r) => r.name === 'list-one')
  assert.equal(w.id, one.workerId)
  assert.equal(w.runtime, 'node')
  assert.equal(w.version, '0.22.1')
  assert.equal(w.description, 'hosts things')
  assert.equal(w.namespace, 'default')
  assert.equal(w.function_count, 3)
  assert.equal(typeof w.connected_at_ms, 'number')
  assert.ok(Math.abs(Date.now() - w.connected_at_ms) < 60_000)
  assert.ok(rows.some((r) => r.name === 'list-two'))
})

test('of two workers that register one id the first keeps it', async () => {
  const first = worker('rival-first')
  first.registerFunction('rival::f', async () => 'first')
  await settled(first)
  const second = worker('rival-second')
  second.registerFunction('rival::f', async () => 'second')
  second.registerFunction('rival::own', async () => 'own')
  await settled(second)
  for (const w of [one, first, second]) assert.equal(await w.trigger({ function_id: 'rival::f' }), 'first')
  assert.equal(await one.trigger({ function_id: 'rival::own' }), 'own', 'the rest of the second worker stands')
  const rows = (await functions(one)).filter((f) => f.function_id === 'rival::f')
  assert.deepEqual(rows.map((f) => f.worker_name), ['rival-first'])

  await second.close()
  await eventually('the second left', async () => !(await functions(one)).some((f) => f.function_id === 'rival::own'))
  assert.equal(await one.trigger({ function_id: 'rival::f' }), 'first', 'its leaving takes nothing from the first')
})

test('a name is free again when its owner has left', async () => {
  const first = worker('heir-first')
  first.registerFunction('heir::f', async () => 'first')
  await settled(first)
  await first.close()
  const second = worker('heir-second')
  await eventually('the first left', async () => !(await functions(one)).some((f) => f.function_id === 'heir::f'))
  second.registerFunction('heir::f', async () => 'second')
  await settled(second)
  assert.equal(await one.trigger({ function_id: 'heir::f' }), 'second')
})

test('two workers of one name both stand', async () => {
  const a = worker('twin')
  const b = worker('twin')
  a.registerFunction('twin::a', async () => 'a')
  b.registerFunction('twin::b', async () => 'b')
  await Promise.all([settled(a), settled(b)])
  assert.equal(await one.trigger({ function_id: 'twin::a' }), 'a')
  assert.equal(await one.trigger({ function_id: 'twin::b' }), 'b')
  const ids = (await workers(one)).filter((w) => w.name.startsWith('twin')).map((w) => w.id)
  assert.deepEqual(ids.sort(), [a.workerId, b.workerId].sort())
})

test('a worker that leaves takes its row and its functions along', async () => {
  const w = worker('leaving')
  w.registerFunction('leaving::f', async () => 1)
  await settled(w)
  assert.ok((await workers(one)).some((r) => r.name === 'leaving'))
  await w.close()
  await eventually('row and function are gone', async () => {
    assert.ok(!(await workers(one)).some((r) => r.name === 'leaving'))
    assert.ok(!(await functions(one)).some((f) => f.function_id === 'leaving::f'))
  })
})
