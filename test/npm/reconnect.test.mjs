// Connections that break. Whatever breaks, the functions come back, and calls have one outcome.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { eventually, failure, functions, lever, proxied, settled, worker, workers } from './kit.mjs'

const watcher = worker('watcher')
await settled(watcher)

function hosting(name, n = 3, options = {}) {
  const w = worker(name, { address: proxied, ...options })
  for (let i = 0; i < n; i++) w.registerFunction(`${name}::f${i}`, async (input) => [name, i, input])
  return w
}

const allServe = (name, n = 3) =>
  eventually(`all functions of ${name} serve`, async () => {
    for (let i = 0; i < n; i++) {
      assert.deepEqual(await watcher.trigger({ function_id: `${name}::f${i}`, payload: i }), [name, i, i])
    }
  })

const rows = async (name) => (await workers(watcher)).filter((r) => r.name.startsWith(name))

test('functions are back after the connection was cut', async () => {
  const w = hosting('cut')
  await settled(w)
  const id = w.workerId
  await lever('cut')
  await eventually('it has connected again', () => w.workerId !== id)
  await allServe('cut')
  assert.equal((await rows('cut')).length, 1)
  await w.close()
})

test('functions are back while the engine still believes in the old connection', async () => {
  const w = hosting('ghost', 20)
  await settled(w)
  const id = w.workerId
  await lever('ghost') // the worker's side is closed, the engine's is kept open
  await eventually('it has connected again', () => w.workerId !== id)
  await settled(w)
  // No waiting here: the successor retires the ghost before its own registrations are read.
  for (let i = 0; i < 20; i++) {
    assert.deepEqual(await watcher.trigger({ function_id: `ghost::f${i}`, payload: 'x' }), ['ghost', i, 'x'])
  }
  assert.deepEqual((await rows('ghost')).map((r) => r.id), [w.workerId])
  await lever('mend')
  await settled(watcher)
  assert.equal((await rows('ghost')).length, 1)
  await w.close()
})

test('functions survive twenty cuts in a row', async () => {
  const w = hosting('often', 10)
  await settled(w)
  for (let round = 0; round < 20; round++) {
    const id = w.workerId
    await lever(round % 2 ? 'ghost' : 'cut')
    await eventually(`round ${round}: it has connected again`, () => w.workerId !== id)
    await settled(w)
    for (let i = 0; i < 10; i++) {
      assert.deepEqual(await watcher.trigger({ function_id: `often::f${i}`, payload: round }), ['often', i, round])
    }
  }
  await lever('mend')
  await w.close()
})

test('a call in flight to a worker that is cut off fails once, with its code', async () => {
  const w = hosting('flight')
  const began = new Promise((resolve) => w.registerFunction('flight::hang', () => (resolve(), new Promise(() => {}))))
  await settled(w)
  const outcome = failure(watcher.trigger({ function_id: 'flight::hang', payload: {} }))
  await began
  await lever('cut')
  assert.equal((await outcome).code, 'invocation_stopped')
  await allServe('flight')
  await w.close()
})

test('a call made while the worker is offline is sent when it is back', async () => {
  const w = hosting('offline')
  await settled(w)
  await lever('cut')
  await eventually('it noticed', () => w.connectionState !== 'connected')
  assert.deepEqual(await w.trigger({ function_id: 'offline::f1', payload: 'later' }), ['offline', 1, 'later'])
  await w.close()
})

test('functions taken back before a cut stay away after it', async () => {
  const w = hosting('shrink')
  const ref = w.registerFunction('shrink::gone', async () => 1)
  await settled(w)
  ref.unregister()
  await settled(w)
  const id = w.workerId
  await lever('cut')
  await eventually('it has connected again', () => w.workerId !== id)
  await settled(w)
  await allServe('shrink')
  assert.ok(!(await functions(watcher)).some((f) => f.function_id === 'shrink::gone'))
  await w.close()
})

for (const how of ['restart', 'kill']) {
  test(`functions are back after the engine was stopped by ${how} and started on the same port`, async () => {
    const direct = worker(`${how}-direct`)
    direct.registerFunction(`${how}::direct`, async () => 'direct')
    const w = hosting(how)
    await Promise.all([settled(w), settled(direct)])
    const ids = [w.workerId, direct.workerId, watcher.workerId]
    await lever(how)
    await eventually('all have connected again', () =>
      [w, direct, watcher].every((x, i) => x.workerId !== ids[i] && x.connectionState === 'connected'),
    )
    await allServe(how)
    assert.equal(await eventually('the other one serves', () => watcher.trigger({ function_id: `${how}::direct` })), 'direct')
    await Promise.all([w.close(), direct.close()])
  })
}
