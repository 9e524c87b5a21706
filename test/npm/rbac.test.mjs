// A listener with rules of its own: an auth function decides who connects, rules decide what is exposed,
// hooks decide on registrations, and a middleware stands before every call.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bare, complaints, eventually, failure, functions, publicly, settled, worker } from './kit.mjs'

const inside = worker('inside')
const asked = { auth: [], middleware: [], fn: [], trigger: [], type: [] }

/** What each kind of guest is told, by the query parameter `as`. */
const guests = {
  reader: { allowed_functions: ['shop::price'], context: { guest: 'reader' } },
  barred: { allowed_functions: ['shop::price'], forbidden_functions: ['open::hello'], context: {} },
  maker: { function_registration_prefix: 'guest', allow_trigger_type_registration: true, context: { guest: 'maker' } },
  mute: { allow_function_registration: false },
  bound: { allowed_trigger_types: ['allowed'], allowed_functions: ['shop::price'] },
  scoped: { namespaces: { default: ['match("shop::*")'] } },
}
inside.registerFunction('guard::auth', async (input) => {
  asked.auth.push(input)
  const who = input.query_params.as?.[0] ?? input.headers['x-as']
  if (!guests[who]) throw new Error('nobody knows you')
  return guests[who]
})
inside.registerFunction('guard::middleware', async (input) => {
  asked.middleware.push(input)
  if (input.function_id === 'shop::blocked') throw new Error('the middleware says no')
  const result = await inside.trigger({ function_id: input.function_id, payload: input.payload })
  return { through: 'middleware', result }
})
inside.registerFunction('guard::on-function', async (input) => {
  asked.fn.push(input)
  return input.function_id.includes('evil') ? null : { description: 'seen by the hook' }
})
inside.registerFunction('guard::on-trigger', async (input) => {
  asked.trigger.push(input)
  return input.config?.evil ? false : { config: { ...input.config, hooked: true } }
})
inside.registerFunction('guard::on-type', async (input) => {
  asked.type.push(input)
  return input.trigger_type_id?.includes('evil') || input.id?.includes('evil') ? null : {}
})
inside.registerFunction('shop::price', async (input) => ({ price: 5, input }))
inside.registerFunction('shop::blocked', async () => 'never')
inside.registerFunction('shop::secret', async () => 'secret')
inside.registerFunction('open::hello', async () => 'hello', { metadata: { public: true } })
inside.registerFunction('closed::hello', async () => 'hello', { metadata: { public: 'true' } })
await settled(inside)

const guest = (as, { name = `guest-${as}`, ...options } = {}) => worker(name, { address: `${publicly}/?as=${as}`, ...options })
const call = (w, function_id, payload = {}) => w.trigger({ function_id, payload })
const through = (result) => ({ through: 'middleware', result })

test('the auth function is told headers, query and address of each upgrade', async () => {
  const w = guest('reader', { headers: { 'X-Extra': 'yes' } })
  await settledGuest(w)
  const input = asked.auth.find((i) => i.headers['x-extra'] === 'yes')
  assert.deepEqual(input.query_params, { as: ['reader'] })
  assert.equal(input.ip_address, '127.0.0.1')
  const repeated = await bare({ address: publicly, path: '/?as=reader&as=x&flag=' })
  assert.ok(asked.auth.some((i) => JSON.stringify(i.query_params) === '{"as":["reader","x"],"flag":[""]}'))
  await repeated.close()
})

/** A guest may not ask for the engine's health; a log line is allowed to everybody. */
const settledGuest = (w) => w.trigger({ function_id: 'engine::log::debug', payload: { message: 'here' } })

test('a header decides as well', async () => {
  const w = worker('by-header', { address: publicly, headers: { 'x-as': 'reader' } })
  await settledGuest(w)
  assert.deepEqual(await call(w, 'shop::price', 1), through({ price: 5, input: 1 }))
})

test('a guest that the auth function refuses is turned away, and its SDK keeps trying', async () => {
  await assert.rejects(bare({ address: publicly, path: '/?as=stranger' }), /401/)
  const before = asked.auth.length
  const w = guest('stranger')
  await eventually('it tried three times', () => asked.auth.length >= before + 3)
  await w.close()
})

test('a guest calls what it is allowed and what is exposed, and nothing else', async () => {
  const w = guest('reader')
  assert.deepEqual(await call(w, 'shop::price', { n: 1 }), through({ price: 5, input: { n: 1 } }))
  assert.deepEqual(await call(w, 'open::hello'), through('hello'))
  assert.equal((await failure(call(w, 'closed::hello'))).code, 'FORBIDDEN')
  const error = await failure(call(w, 'shop::secret'))
  assert.equal(error.code, 'FORBIDDEN')
  assert.equal((await failure(call(w, 'engine::functions::list'))).code, 'FORBIDDEN')
})

test('what is forbidden stays forbidden though it is exposed', async () => {
  const w = guest('barred')
  assert.equal((await failure(call(w, 'open::hello'))).code, 'FORBIDDEN')
  assert.deepEqual(await call(w, 'shop::price', 1), through({ price: 5, input: 1 }))
})

test('a grant by namespace is a pattern', async () => {
  const w = guest('scoped')
  assert.deepEqual(await call(w, 'shop::secret'), through('secret'))
  assert.equal((await failure(call(w, 'guard::auth'))).code, 'FORBIDDEN')
})

test('channels, logs and baggage are for every guest', async () => {
  const w = guest('reader')
  assert.ok((await call(w, 'engine::channels::create')).reader)
  assert.equal(await call(w, 'engine::log::info', { message: 'from a guest' }), null)
  assert.ok('baggage' in (await call(w, 'engine::baggage::get_all')))
})

test('the middleware sees function, payload, context and namespace, and answers', async () => {
  const w = guest('reader')
  await call(w, 'shop::price', { marked: 'm' })
  const input = asked.middleware.find((i) => i.payload?.marked === 'm')
  assert.equal(input.function_id, 'shop::price')
  assert.deepEqual(input.context, { guest: 'reader' })
  assert.equal(input.namespace, 'default')
  guests.reader.allowed_functions.push('shop::blocked')
  const late = guest('reader', { name: 'guest-late' })
  const error = await failure(call(late, 'shop::blocked'))
  assert.match(error.message, /the middleware says no/)
})

test('a guest registers below its prefix and does not notice', async () => {
  const w = guest('maker')
  const got = new Promise((resolve) => w.registerFunction('cart::add', async (input) => (resolve(input), 'added')))
  await settledGuest(w)
  assert.equal(await call(inside, 'guest::cart::add', { n: 2 }), 'added')
  assert.deepEqual(await got, { n: 2 })
  assert.equal((await failure(call(inside, 'cart::add'))).code, 'function_not_found')
  const row = (await functions(inside)).find((f) => f.function_id === 'guest::cart::add')
  assert.equal(row.description, 'seen by the hook')
  assert.ok(asked.fn.some((i) => i.context?.guest === 'maker'))
})

test('a hook that does not answer with an object denies, and the worker is told', async () => {
  const b = await bare({ address: publicly, path: '/?as=maker' })
  introduce(b, 'maker-bare')
  b.send({ type: 'registerfunction', id: 'evil::f' })
  assert.equal((await b.next({ type: 'registrationrejected' })).code, 'FORBIDDEN')
  b.send({ type: 'registertrigger', id: 'e', trigger_type: 'any', function_id: 'cart::add', config: { evil: true } })
  assert.equal((await b.next({ type: 'triggerregistrationresult', id: 'e' })).error.code, 'FORBIDDEN')
  b.send({ type: 'registertriggertype', id: 'evil-type', description: '' })
  await b.echo()
  const types = (await call(inside, 'engine::triggers::list')).triggers.map((t) => t.id)
  assert.ok(!types.includes('evil-type'))
  await b.close()
})

const introduce = (b, name) =>
  b.send({
    type: 'invokefunction',
    function_id: 'engine::workers::register',
    data: { runtime: 'bare', version: '0', name, pid: process.pid },
    action: { type: 'void' },
  })

test('a hook changes a trigger, and its target gets the prefix', async () => {
  const bound = []
  inside.registerTriggerType(
    { id: 'hooked-type', description: '' },
    { registerTrigger: async (x) => void bound.push(x), unregisterTrigger: async () => {} },
  )
  await settled(inside)
  const w = guest('maker')
  w.registerTrigger({ type: 'hooked-type', function_id: 'cart::add', config: { n: 1 } })
  await eventually('it arrived', () => bound.length === 1)
  assert.deepEqual(bound[0].config, { n: 1, hooked: true })
  assert.equal(bound[0].function_id, 'guest::cart::add')
})

test('who may offer trigger types does, and others do not', async () => {
  const maker = guest('maker')
  maker.registerTriggerType({ id: 'offered', description: 'by a guest' }, { registerTrigger: async () => {}, unregisterTrigger: async () => {} })
  await settledGuest(maker)
  const reader = guest('reader')
  reader.registerTriggerType({ id: 'not-offered', description: '' }, { registerTrigger: async () => {}, unregisterTrigger: async () => {} })
  await settledGuest(reader)
  const types = await eventually('it is listed', async () => {
    const rows = (await call(inside, 'engine::triggers::list')).triggers.map((t) => t.id)
    return rows.includes('offered') && rows
  })
  assert.ok(!types.includes('not-offered'))
})

test('a guest that may not register is told so', async () => {
  const b = await bare({ address: publicly, path: '/?as=mute' })
  introduce(b, 'mute-bare')
  b.send({ type: 'registerfunction', id: 'mute::f' })
  assert.equal((await b.next({ type: 'registrationrejected' })).code, 'FORBIDDEN')
  await b.close()
})

test('a guest binds to the trigger types that it is allowed', async () => {
  const w = guest('bound')
  const before = complaints.length
  w.registerTrigger({ type: 'not-allowed', function_id: 'shop::price', config: {} })
  await eventually('it is refused', () => complaints.slice(before).some((c) => /not-allowed/.test(c)))
})

test('a channel goes from the listener of the guests to the main one', async () => {
  const w = guest('reader')
  const { writer, reader } = await call(w, 'engine::channels::create')
  const path = (ref) => `/ws/channels/${ref.channel_id}?key=${ref.access_key}&dir=${ref.direction}`
  const [from, to] = [await bare({ address: publicly, path: path(writer) }), await bare({ path: path(reader) })]
  from.send({ hello: 'inside' })
  await to.next({ hello: 'inside' })
  await from.close()
})

test('the main listener trusts as before', async () => {
  assert.equal(await call(inside, 'shop::secret'), 'secret')
})
