// Triggers with the public SDK: a provider offers a type, a binder wants it, the engine stands between.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bare, complaints, eventually, failure, lever, proxied, settled, triggers, worker } from './kit.mjs'

const watcher = worker('watcher')
await settled(watcher)
const ask = (function_id, payload = {}) => watcher.trigger({ function_id, payload })

/** A worker that offers a type and keeps what it was told of, in have and gone. */
function provider(type, { name = `${type}-provider`, ...options } = {}) {
  const w = worker(name, options)
  const have = new Map()
  const gone = []
  const offer = () =>
    w.registerTriggerType(
      {
        id: type,
        description: `${type} events`,
        trigger_request_format: { type: 'object', properties: { path: { type: 'string' } } },
        call_request_format: { type: 'object', properties: { event: { type: 'number' } } },
      },
      {
        registerTrigger: async (b) => {
          if (b.config.bad) throw new Error(`bad config for ${type}`)
          have.set(b.id, b)
        },
        unregisterTrigger: async (b) => {
          gone.push(b)
          have.delete(b.id)
        },
      },
    )
  const ref = offer()
  /** Fires for every binding, as providers do: an ordinary call with the binding's metadata beside it. */
  const fire = (payload) =>
    Promise.all([...have.values()].map((b) => w.trigger({ function_id: b.function_id, payload, metadata: b.metadata })))
  return Object.assign(w, { have, gone, fire, offer, ref })
}

/** A worker whose function answers what it got. */
function binder(name, options) {
  const w = worker(name, options)
  w.registerFunction(`${name}::f`, async (payload, metadata) => ({ payload, metadata }))
  return w
}

const status = async (function_id) => (await triggers(watcher, { function_id })).map((r) => r.status)
const becomes = (function_id, ...want) =>
  eventually(`triggers of ${function_id} are ${want}`, async () => assert.deepEqual(await status(function_id), want))

test('a trigger reaches its provider and fires with payload and metadata', async () => {
  const p = provider('webhook')
  const b = binder('hooked')
  await Promise.all([settled(p), settled(b)])
  b.registerTrigger({ type: 'webhook', function_id: 'hooked::f', config: { path: '/x' }, metadata: { why: 'test' } })
  await eventually('it arrived', () => p.have.size === 1)
  const [got] = p.have.values()
  assert.match(got.id, /^[0-9a-f-]{36}$/)
  assert.deepEqual({ ...got, id: 0 }, { id: 0, function_id: 'hooked::f', config: { path: '/x' }, metadata: { why: 'test' } })
  assert.deepEqual(await p.fire({ event: 1 }), [{ payload: { event: 1 }, metadata: { why: 'test' } }])
})

test('config and metadata of every kind arrive as they were given', async () => {
  const p = provider('kinds')
  const b = binder('kinded')
  await Promise.all([settled(p), settled(b)])
  const given = [[{ a: [1, { b: null }] }, undefined], [{ '"': '\\ \u{1f680}' }, 'text'], [{ n: 1e21 }, [0, false]], [{}, { deep: {} }]]
  for (const [config, metadata] of given) b.registerTrigger({ type: 'kinds', function_id: 'kinded::f', config, metadata })
  await eventually('all arrived', () => p.have.size === given.length)
  assert.deepEqual([...p.have.values()].map((g) => [g.config, g.metadata]), given, 'in the order of their registration')
})

test("a provider's refusal is forwarded to the binder, and the trigger is kept as an intent", async () => {
  const p = provider('picky')
  const b = binder('picked')
  await Promise.all([settled(p), settled(b)])
  b.registerTrigger({ type: 'picky', function_id: 'picked::f', config: { bad: true } })
  await eventually('the SDK complains', () =>
    complaints.some((c) => /Trigger registration failed .*\(picky\): .*bad config for picky/.test(c)),
  )
  assert.deepEqual(await status('picked::f'), ['rejected'])
  assert.equal(p.have.size, 0)
})

test('a refused trigger is tried again when its type is offered again', async () => {
  const p = provider('mellow')
  const b = binder('mellowed')
  await Promise.all([settled(p), settled(b)])
  const config = { bad: true }
  b.registerTrigger({ type: 'mellow', function_id: 'mellowed::f', config })
  await becomes('mellowed::f', 'rejected')
  const next = worker('mellow-next')
  const took = new Promise((resolve) =>
    next.registerTriggerType(
      { id: 'mellow', description: 'takes anything' },
      { registerTrigger: async (x) => resolve(x), unregisterTrigger: async () => {} },
    ),
  )
  assert.deepEqual((await took).config, config)
  await becomes('mellowed::f', 'active')
})

test('a trigger of an unknown type waits in silence and is delivered once the type is offered', async () => {
  const b = binder('early')
  await settled(b)
  const before = complaints.length
  b.registerTrigger({ type: 'late', function_id: 'early::f', config: { path: '/later' } })
  await settled(b)
  assert.deepEqual(await status('early::f'), ['parked'])
  assert.equal(complaints.length, before, 'nobody is told of an error')
  const p = provider('late')
  await eventually('it arrived', () => p.have.size === 1)
  assert.deepEqual(await p.fire('x'), [{ payload: 'x' }])
})

test('triggers park when their provider leaves, and go to the next one', async () => {
  const first = provider('shift', { name: 'shift-first' })
  const b = binder('shifted')
  await Promise.all([settled(first), settled(b)])
  for (const path of ['/a', '/b', '/c']) b.registerTrigger({ type: 'shift', function_id: 'shifted::f', config: { path } })
  await eventually('all arrived', () => first.have.size === 3)
  const ids = [...first.have.keys()].sort()
  await first.close()
  await becomes('shifted::f', 'parked', 'parked', 'parked')
  const second = provider('shift', { name: 'shift-second' })
  await eventually('all arrived again', () => second.have.size === 3)
  assert.deepEqual([...second.have.keys()].sort(), ids, 'with the ids that they had')
  assert.equal((await second.fire(1)).length, 3)
})

test('whoever offers a type last has it, and the one before is told', async () => {
  const first = provider('twice', { name: 'twice-first' })
  const b = binder('twiced')
  await Promise.all([settled(first), settled(b)])
  b.registerTrigger({ type: 'twice', function_id: 'twiced::f', config: {} })
  await eventually('the first has it', () => first.have.size === 1)
  const second = provider('twice', { name: 'twice-second' })
  await eventually('the second has it', () => second.have.size === 1)
  await eventually('the first has been told', () => first.have.size === 0)
  await first.close()
  await settled(second)
  assert.deepEqual(await status('twiced::f'), ['active'], 'the leaving of the first changes nothing')
  assert.equal(second.have.size, 1)
})

test('a type that is taken back parks its triggers, and offered again gets them back', async () => {
  const p = provider('revoked')
  const b = binder('revoking')
  await Promise.all([settled(p), settled(b)])
  b.registerTrigger({ type: 'revoked', function_id: 'revoking::f', config: {} })
  await eventually('it arrived', () => p.have.size === 1)
  p.ref.unregister()
  await becomes('revoking::f', 'parked')
  assert.equal((await failure(ask('engine::triggers::info', { id: 'revoked' }))).code, 'NOT_FOUND')
  p.have.clear()
  p.offer()
  await eventually('it arrived again', () => p.have.size === 1)
})

test('a worker cannot take back the type of another', async () => {
  const p = provider('mine')
  await settled(p)
  const thief = worker('thief')
  thief.unregisterTriggerType({ id: 'mine', description: '' })
  await settled(thief)
  assert.equal((await ask('engine::triggers::info', { id: 'mine' })).worker_name, 'mine-provider')
})

test('a binder that leaves takes its triggers along, and the provider is told', async () => {
  const p = provider('orphan')
  const b = binder('orphaned')
  await Promise.all([settled(p), settled(b)])
  for (let i = 0; i < 3; i++) b.registerTrigger({ type: 'orphan', function_id: 'orphaned::f', config: { i } })
  await eventually('all arrived', () => p.have.size === 3)
  await b.close()
  await eventually('all are gone', () => p.have.size === 0)
  assert.ok(p.gone.every((g) => g.function_id === '' && g.config === undefined), 'only id and type are told')
  assert.deepEqual(await status('orphaned::f'), [])
})

test('a handle takes its own trigger back and no other', async () => {
  const p = provider('handle')
  const b = binder('handled')
  await Promise.all([settled(p), settled(b)])
  const one = b.registerTrigger({ type: 'handle', function_id: 'handled::f', config: { n: 1 } })
  b.registerTrigger({ type: 'handle', function_id: 'handled::f', config: { n: 2 } })
  await eventually('both arrived', () => p.have.size === 2)
  one.unregister()
  await eventually('one is gone', () => p.have.size === 1)
  assert.deepEqual([...p.have.values()].map((x) => x.config), [{ n: 2 }])
  one.unregister()
  await settled(b)
  assert.equal(p.have.size, 1, 'taking it back twice harms nothing')
})

test('a trigger that waits can be taken back, too', async () => {
  const b = binder('fickle')
  await settled(b)
  b.registerTrigger({ type: 'never', function_id: 'fickle::f', config: {} }).unregister()
  await settled(b)
  assert.deepEqual(await status('fickle::f'), [])
})

test('the function of a trigger need not exist yet', async () => {
  const p = provider('ahead')
  const b = worker('ahead-binder')
  await Promise.all([settled(p), settled(b)])
  b.registerTrigger({ type: 'ahead', function_id: 'ahead::f', config: {} })
  await eventually('it arrived', () => p.have.size === 1)
  assert.equal((await failure(p.fire(1))).code, 'function_not_found')
  b.registerFunction('ahead::f', async (n) => n + 1)
  await settled(b)
  assert.deepEqual(await p.fire(1), [2])
})

test('a worker binds its own function to its own type', async () => {
  const p = provider('self')
  p.ref.registerFunction('self::f', async (payload, metadata) => [payload, metadata], { path: '/self' }, { m: 1 })
  await eventually('it arrived', () => p.have.size === 1)
  assert.deepEqual(await p.fire('me'), [['me', { m: 1 }]])
})

test('engine::register_trigger makes a trigger that outlives its maker, until it is removed', async () => {
  const p = provider('durable')
  const b = binder('durably')
  const maker = worker('maker')
  await Promise.all([settled(p), settled(b), settled(maker)])
  const { id } = await maker.trigger({
    function_id: 'engine::register_trigger',
    payload: { trigger_type: 'durable', function_id: 'durably::f', config: { path: '/d' }, metadata: { kept: true } },
  })
  assert.deepEqual([...p.have.keys()], [id], 'the provider has answered by then')
  await maker.close()
  await eventually('the maker has left', async () => !(await ask('engine::workers::list')).workers.some((w) => w.name === 'maker'))
  assert.deepEqual(await p.fire(1), [{ payload: 1, metadata: { kept: true } }])
  await b.close()
  await settled(watcher)
  assert.deepEqual(await status('durably::f'), ['active'], 'nor does it go with its function')
  assert.deepEqual(await ask('engine::unregister_trigger', { id }), { removed: true })
  await eventually('the provider has been told', () => p.have.size === 0)
  assert.deepEqual(await ask('engine::unregister_trigger', { id }), { removed: false })
})

test('engine::register_trigger parks without a provider and fails with the words of one that refuses', async () => {
  const { id } = await ask('engine::register_trigger', { trigger_type: 'absent', function_id: 'some::f' })
  assert.deepEqual(await status('some::f'), ['parked'])
  await ask('engine::unregister_trigger', { id, trigger_type: 'absent' })
  const p = provider('strict')
  await settled(p)
  const error = await failure(ask('engine::register_trigger', { trigger_type: 'strict', function_id: 'some::f', config: { bad: 1 } }))
  assert.equal(error.code, 'trigger_registration_failed')
  assert.match(error.message, /bad config for strict/)
  assert.deepEqual(await status('some::f'), [], 'nothing is left of it')
  for (const payload of [{}, { trigger_type: 'strict' }, { function_id: 'some::f' }]) {
    assert.equal((await failure(ask('engine::register_trigger', payload))).code, 'INVALID_ARGUMENTS')
  }
  assert.equal((await failure(ask('engine::unregister_trigger', {}))).code, 'unregister_failed')
})

test('trigger types are listed and described', async () => {
  const p = provider('listed')
  const b = binder('lister')
  await Promise.all([settled(p), settled(b)])
  b.registerTrigger({ type: 'listed', function_id: 'lister::f', config: {} })
  await becomes('lister::f', 'active')
  const list = async (query) => (await ask('engine::triggers::list', query)).triggers.map((t) => t.id)
  const row = (await ask('engine::triggers::list', { search: 'listed' })).triggers
  assert.deepEqual(row, [{ id: 'listed', namespace: 'default', worker_name: 'listed-provider', description: 'listed events' }])
  assert.deepEqual(await list({ worker: 'listed-provider' }), ['listed'])
  assert.deepEqual(await list({ prefix: 'liste' }), ['listed'])
  assert.deepEqual(await list({ prefix: 'isted' }), [])
  assert.ok(!(await list({})).some((id) => id.startsWith('engine::')))
  assert.ok((await list({ include_internal: true })).includes('engine::workers-available'))
  const one = await ask('engine::triggers::info', { id: 'listed' })
  assert.deepEqual(one.configuration_schema, { type: 'object', properties: { path: { type: 'string' } } })
  assert.deepEqual(one.request_schema, { type: 'object', properties: { event: { type: 'number' } } })
  assert.equal(one.instance_count, 1)
})

test('triggers are listed and described', async () => {
  const p = provider('shown')
  const b = binder('shower')
  await Promise.all([settled(p), settled(b)])
  const config = { path: '/'.padEnd(200, 'x') }
  b.registerTrigger({ type: 'shown', function_id: 'shower::f', config, metadata: { m: 1 } })
  await becomes('shower::f', 'active')
  const [row, ...more] = await triggers(watcher, { trigger_type: 'shown' })
  assert.deepEqual(more, [])
  assert.deepEqual([row.trigger_type, row.function_id, row.worker_name, row.config], ['shown', 'shower::f', 'shower', config])
  assert.equal(row.config_summary, JSON.stringify(config).slice(0, 80))
  for (const query of [{ search: 'shower' }, { worker: 'shower' }, { function_id: 'shower::f' }]) {
    assert.deepEqual((await triggers(watcher, query)).map((r) => r.id), [row.id])
  }
  const one = await ask('engine::registered-triggers::info', { id: row.id })
  assert.deepEqual([one.metadata, one.trigger.id, one.function.function_id], [{ m: 1 }, 'shown', 'shower::f'])
  assert.equal((await failure(ask('engine::registered-triggers::info', { id: 'none' }))).code, 'NOT_FOUND')
  const described = await ask('engine::functions::info', { function_id: 'shower::f' })
  assert.deepEqual(described.registered_triggers.map((t) => [t.id, t.trigger_type, t.config]), [[row.id, 'shown', config]])
})

test('the engine tells of workers that come and go', async () => {
  const b = worker('news')
  const seen = []
  b.registerFunction('news::f', async (event) => void seen.push(event))
  b.registerTrigger({ type: 'engine::workers-available', function_id: 'news::f', config: {} })
  await settled(b)
  const w = worker('passing')
  await settled(w)
  const id = w.workerId
  await w.close()
  await eventually('both are told', () => seen.filter((e) => e.worker_id === id).length >= 2)
  assert.deepEqual(seen.filter((e) => e.worker_id === id).map((e) => e.event), ['worker_connected', 'worker_disconnected'])
})

test('the engine tells of functions that come', async () => {
  const b = worker('fn-news')
  const seen = []
  b.registerFunction('fn-news::f', async (event) => void seen.push(event))
  b.registerTrigger({ type: 'engine::functions-available', function_id: 'fn-news::f', config: {} })
  await settled(b)
  watcher.registerFunction('brand::new', async () => 1)
  await eventually('it is told', () =>
    seen.some((e) => e.event === 'functions_changed' && e.functions.some((f) => f.function_id === 'brand::new')),
  )
})

const reconnected = async (w, how) => {
  const id = w.workerId
  await lever(how)
  await eventually('it has connected again', () => w.workerId !== id)
  await settled(w)
}

for (const how of ['cut', 'ghost']) {
  test(`a provider whose connection broke (${how}) gets every trigger again`, async () => {
    const type = `back-${how}`
    const p = provider(type, { address: proxied })
    const b = binder(`to-${type}`)
    await Promise.all([settled(p), settled(b)])
    for (let i = 0; i < 3; i++) b.registerTrigger({ type, function_id: `to-${type}::f`, config: { i } })
    await eventually('all arrived', () => p.have.size === 3)
    const ids = [...p.have.keys()].sort()
    p.have.clear()
    await reconnected(p, how)
    await eventually('all arrived again', () => p.have.size === 3)
    assert.deepEqual([...p.have.keys()].sort(), ids)
    assert.equal((await p.fire(1)).length, 3)
    await lever('mend')
    await settled(watcher)
    assert.deepEqual(await status(`to-${type}::f`), ['active', 'active', 'active'])
    await p.close()
  })

  test(`the triggers of a binder whose connection broke (${how}) are there once`, async () => {
    const type = `once-${how}`
    const p = provider(type)
    const b = binder(`by-${type}`, { address: proxied })
    await Promise.all([settled(p), settled(b)])
    for (let i = 0; i < 3; i++) b.registerTrigger({ type, function_id: `by-${type}::f`, config: { i } })
    await eventually('all arrived', () => p.have.size === 3)
    const ids = [...p.have.keys()].sort()
    await reconnected(b, how)
    await eventually('they are as before', () => assert.deepEqual([...p.have.keys()].sort(), ids))
    assert.equal((await p.fire(1)).length, 3)
    await lever('mend')
    await settled(watcher)
    await becomes(`by-${type}::f`, 'active', 'active', 'active')
    await b.close()
  })
}

test('triggers are back after the engine was started again', async () => {
  const p = provider('reborn', { address: proxied })
  const b = binder('reborn-binder', { address: proxied })
  await Promise.all([settled(p), settled(b)])
  b.registerTrigger({ type: 'reborn', function_id: 'reborn-binder::f', config: {}, metadata: 7 })
  await eventually('it arrived', () => p.have.size === 1)
  p.have.clear()
  const ids = [p.workerId, b.workerId, watcher.workerId]
  await lever('kill')
  await eventually('all have connected again', () =>
    [p, b, watcher].every((w, i) => w.workerId !== ids[i] && w.connectionState === 'connected'),
  )
  await eventually('it arrived again', () => p.have.size === 1)
  assert.deepEqual(await eventually('it fires', () => p.fire(1)), [{ payload: 1, metadata: 7 }])
})

test('a success is not forwarded, and only the answer of the provider counts', async () => {
  const p = await bare({ name: 'wire-provider' })
  const b = await bare({ name: 'wire-binder' })
  p.send({ type: 'registertriggertype', id: 'wired', description: 'x' })
  await p.echo()
  b.send({ type: 'registertrigger', message_type: 'registertrigger', id: 'w-1', trigger_type: 'wired', function_id: 'w::f', config: {} })
  const told = await p.next({ type: 'registertrigger' })
  assert.deepEqual(told, { type: 'registertrigger', id: 'w-1', trigger_type: 'wired', function_id: 'w::f', config: {} })
  const answer = { type: 'triggerregistrationresult', id: 'w-1', trigger_type: 'wired', function_id: 'w::f' }
  b.send({ ...answer, error: { code: 'forged', message: 'forged' } })
  await b.echo()
  p.send(answer)
  await p.echo()
  await b.echo()
  assert.deepEqual(b.frames.filter((f) => f.type === 'triggerregistrationresult'), [])
  b.send({ type: 'unregistertrigger', id: 'w-1', trigger_type: 'wired' })
  assert.deepEqual(await p.next({ type: 'unregistertrigger' }), { type: 'unregistertrigger', id: 'w-1', trigger_type: 'wired' })
})

test('the engine refuses a trigger with a blank namespace in the same frame as a provider', async () => {
  const b = await bare({ name: 'blank-binder' })
  b.send({ type: 'registertrigger', id: 'b-1', trigger_type: 'wired', function_id: 'w::f', config: {}, namespace: ' ' })
  const refusal = await b.next({ type: 'triggerregistrationresult' })
  assert.deepEqual([refusal.id, refusal.error.code], ['b-1', 'INVALID_NAMESPACE'])
})
