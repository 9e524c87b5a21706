// Several workers that host one function: metadata.replicas on every registration of it.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bare, eventually, failure, functions, settled, worker } from './kit.mjs'

const caller = worker('caller')
await settled(caller)

/** A worker that hosts id as a replica; it answers its own name. */
async function replica(name, id, { handler = async () => name, metadata = { replicas: true }, ...options } = {}) {
  const w = worker(name, options)
  w.registerFunction(id, handler, { metadata })
  await settled(w)
  return w
}

/** How often each replica answered n calls, width of them at once. */
async function spread(function_id, n, width = 1) {
  const count = {}
  let left = n
  const lane = async () => {
    while (left-- > 0) {
      const name = await caller.trigger({ function_id, payload: {} })
      count[name] = (count[name] ?? 0) + 1
    }
  }
  await Promise.all(Array.from({ length: width }, lane))
  return count
}

test('calls are dealt evenly to two workers that host one function', async () => {
  await replica('even-a', 'even::f')
  await replica('even-b', 'even::f')
  // One at a time all hosts are equal and take turns. With more at once a host that answers faster has fewer in
  // flight and rightly gets more.
  for (const [width, apart] of [[1, 2], [16, 200]]) {
    const { 'even-a': a, 'even-b': b } = await spread('even::f', 400, width)
    assert.equal(a + b, 400)
    assert.ok(Math.abs(a - b) <= apart, `${a} and ${b} of 400 calls, ${width} at once`)
  }
})

test('a call goes to the worker with the fewest in flight', async () => {
  let release
  const hanging = new Promise((resolve) => (release = resolve))
  const slow = []
  const hold = (name) => async ({ wait }) => {
    if (!wait) return name
    slow.push(name)
    await hanging
    return name
  }
  await replica('busy-a', 'busy::f', { handler: hold('busy-a') })
  await replica('busy-b', 'busy::f', { handler: hold('busy-b') })
  const waiting = caller.trigger({ function_id: 'busy::f', payload: { wait: true } })
  await eventually('it began', () => slow.length === 1)
  const free = slow[0] === 'busy-a' ? 'busy-b' : 'busy-a'
  assert.deepEqual(await spread('busy::f', 20), { [free]: 20 })
  release()
  assert.equal(await waiting, slow[0])
})

test('a replica that leaves fails what it was serving, and the others serve on', async () => {
  const began = []
  const hang = (name) => ({ wait }) => (wait ? (began.push(name), new Promise(() => {})) : name)
  const a = await replica('leave-a', 'leave::f', { handler: hang('leave-a') })
  const b = await replica('leave-b', 'leave::f', { handler: hang('leave-b') })
  const outcome = failure(caller.trigger({ function_id: 'leave::f', payload: { wait: true } }))
  await eventually('it began', () => began.length === 1)
  const [first, second] = began[0] === 'leave-a' ? [a, 'leave-b'] : [b, 'leave-a']
  await first.close()
  assert.equal((await outcome).code, 'invocation_stopped')
  assert.deepEqual(await spread('leave::f', 20), { [second]: 20 })
  await (first === a ? b : a).close()
  await eventually('nobody hosts it', async () =>
    (await failure(caller.trigger({ function_id: 'leave::f', payload: {} }))).code === 'function_not_found',
  )
})

test('a replica that takes the function back leaves it to the others', async () => {
  const a = worker('back-a')
  const ref = a.registerFunction('back::f', async () => 'back-a', { metadata: { replicas: true } })
  await settled(a)
  await replica('back-b', 'back::f')
  ref.unregister()
  await settled(a)
  assert.deepEqual(await spread('back::f', 10), { 'back-b': 10 })
})

test('a worker that joins gets its share, and one that comes back, too', async () => {
  await replica('join-a', 'join::f')
  assert.deepEqual(await spread('join::f', 10), { 'join-a': 10 })
  const b = await replica('join-b', 'join::f')
  assert.deepEqual(await spread('join::f', 10), { 'join-a': 5, 'join-b': 5 })
  await b.close()
  await eventually('it has left', async () => (await spread('join::f', 2))['join-b'] === undefined)
  await replica('join-b', 'join::f')
  assert.deepEqual(await spread('join::f', 10), { 'join-a': 5, 'join-b': 5 })
})

test('a worker that does not say replicas conflicts, and the replicas stay', async () => {
  await replica('strict-a', 'strict::f')
  await replica('strict-b', 'strict::f')
  const third = await bare({ name: 'strict-c' })
  third.send({ type: 'registerfunction', id: 'strict::f' })
  const refusal = await third.next({ type: 'registrationrejected' })
  assert.deepEqual([refusal.code, refusal.function_id], ['FUNCTION_NAMESPACE_CONFLICT', 'strict::f'])
  assert.deepEqual(await spread('strict::f', 10), { 'strict-a': 5, 'strict-b': 5 })
})

test('nobody becomes a replica of a function whose host does not say so', async () => {
  await replica('sole-a', 'sole::f', { metadata: { team: 'x' } })
  for (const metadata of [{ replicas: true }, { replicas: false }, undefined]) {
    const second = await bare({ name: 'sole-b' })
    second.send({ type: 'registerfunction', id: 'sole::f', metadata })
    assert.equal((await second.next({ type: 'registrationrejected' })).code, 'FUNCTION_NAMESPACE_CONFLICT')
    await second.close()
  }
  assert.deepEqual(await spread('sole::f', 10), { 'sole-a': 10 })
})

test('a replicated function is one row, and described with all its workers', async () => {
  await replica('row-a', 'row::f')
  await replica('row-b', 'row::f')
  const rows = (await functions(caller)).filter((f) => f.function_id === 'row::f')
  assert.equal(rows.length, 1)
  const info = await caller.trigger({ function_id: 'engine::functions::info', payload: { function_id: 'row::f' } })
  assert.deepEqual(info.replicas.sort(), ['row-a', 'row-b'])
})
