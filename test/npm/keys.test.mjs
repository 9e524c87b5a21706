// Worker keys, once an account exists. The SDK carries a key as the password of its URL, which is the one
// way to its main, telemetry and channel sockets.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createChannel } from 'iii-sdk/helpers'
import { WebSocket } from 'ws'
import { admin, bare, eventually, failure, functions, keyed, lever, local, proxied, settled, straight, worker } from './kit.mjs'

const name = 'ann'
const password = 'a long password of a test'

test('before there is an account, loopback needs no key', async () => {
  const w = worker('unclaimed')
  await settled(w)
  await w.close()
})

test('before there is an account, a wrong key is refused all the same', async () => {
  await assert.rejects(bare({ address: keyed('wk_aaaaaaaa_'.padEnd(55, 'a')) }), /401/)
})

let token // of the session of the first account
let all // a key for everything
const create = (body) => admin('POST', '/api/keys', { token, body: { kind: 'worker', expires_in_seconds: 3600, ...body } })

test('the first account ends what came without a key, which is refused from then on', async () => {
  const before = worker('from-before')
  await settled(before)
  const id = before.workerId
  await admin('POST', '/api/setup/bootstrap', { token: await local(), body: { name, password } })
  await assert.rejects(bare(), /401/)
  await eventually('the worker from before is out', () => before.connectionState !== 'connected' || before.workerId !== id)
  await before.close()
  ;({ token } = await admin('POST', '/api/login', { body: { name, password } }))
  all = await create({ name: 'all', scopes: ['engine:*'] })
})

test('a key is shown once, and looks like one', async () => {
  assert.match(all.secret, /^wk_[0-9A-Za-z]{8}_[0-9A-Za-z_-]{43}$/)
  const { keys } = await admin('GET', '/api/keys', { token })
  assert.ok(!JSON.stringify(keys).includes(all.secret.split('_').slice(2).join('_')))
})

test('a worker with a key registers, calls, and opens its telemetry and its channels', async () => {
  const host = worker('keyed-host', { address: keyed(all.secret, proxied), otel: undefined })
  host.registerFunction('keyed::drain', async ({ reader }) => (await reader.readAll()).length)
  await settled(host)
  const caller = worker('keyed-caller', { address: keyed(all.secret) })
  await settled(caller)
  const { writer, readerRef } = await createChannel(caller)
  const answer = caller.trigger({ function_id: 'keyed::drain', payload: { reader: readerRef } })
  writer.stream.end(Buffer.alloc(100_000))
  assert.equal(await answer, 100_000)
  await eventually('the telemetry arrived', async () => {
    const [, bytes] = (await lever('paths')).match(/^\/otel (\d+)$/m) ?? []
    return Number(bytes) > 1_000
  })
  await host.close()
})

test('the user name of a URL does not matter', async () => {
  for (const user of ['', 'x', 'ann', '%F0%9F%9A%80']) {
    const b = await bare({ address: straight.replace('ws://', `ws://${user}:${all.secret}@`) })
    await b.close()
  }
})

test('a key in the Authorization header is as good', async () => {
  const w = worker('bearer', { headers: { Authorization: `Bearer ${all.secret}` } })
  await settled(w)
  await w.close()
})

test('telemetry does not open without a key', async () => {
  await assert.rejects(bare({ path: '/otel' }), /401/)
  await (await bare({ path: '/otel', address: keyed(all.secret) })).close()
})

test('a channel opens with the key of its end alone, and not with a wrong key beside it', async () => {
  const maker = worker('maker', { address: keyed(all.secret) })
  await settled(maker)
  const { readerRef: ref } = await createChannel(maker)
  const path = `/ws/channels/${ref.channel_id}?key=${ref.access_key}&dir=read`
  await assert.rejects(bare({ path, address: keyed(`${all.secret}x`) }), /401/)
  await (await bare({ path })).close()
})

test('a wrong key is refused, and the SDK keeps trying until the key is right', async () => {
  const wrong = `${all.secret.slice(0, -4)}AAAA`
  await assert.rejects(bare({ address: keyed(wrong) }), /401/)
  let tries = 0
  const count = WebSocket.prototype.emit
  const w = worker('wrong', { address: keyed(wrong) })
  w.registerFunction('wrong::f', async () => 'right now')
  WebSocket.prototype.emit = function (event, ...rest) {
    if (event === 'error' && this.url.includes('AAAA')) tries++
    return count.call(this, event, ...rest)
  }
  try {
    await eventually('it has tried five times', () => tries >= 5)
  } finally {
    WebSocket.prototype.emit = count
  }
  w.address = keyed(all.secret) // as if its owner had corrected the setting
  await settled(w)
  const caller = worker('wrong-caller', { address: keyed(all.secret) })
  assert.equal(await caller.trigger({ function_id: 'wrong::f' }), 'right now')
  await w.close()
})

test('a key for a prefix registers and calls below it, and nothing else', async () => {
  const scopes = ['engine:read', 'engine:call:shop::', 'engine:register:shop::']
  const { secret } = await create({ name: 'shop', scopes })
  const other = worker('other', { address: keyed(all.secret) })
  other.registerFunction('vault::open', async () => 'gold')
  other.registerFunction('shop::stock', async () => 3)
  await settled(other)
  const shop = worker('shop', { address: keyed(secret) })
  shop.registerFunction('shop::sell', async () => 'sold')
  shop.registerFunction('vault::mine', async () => 'mine')
  await settled(shop)
  assert.equal(await shop.trigger({ function_id: 'shop::stock' }), 3)
  assert.equal(await other.trigger({ function_id: 'shop::sell' }), 'sold')
  const denied = await failure(shop.trigger({ function_id: 'vault::open' }))
  assert.equal(denied.code, 'FORBIDDEN')
  assert.match(denied.message, /engine:call/, 'it says which scope is missing')
  assert.ok(!(await functions(other)).some((f) => f.function_id === 'vault::mine'))
  const b = await bare({ address: keyed(secret), name: 'shop-bare' })
  b.send({ type: 'registerfunction', id: 'vault::bare' })
  const refusal = await b.next({ type: 'registrationrejected', function_id: 'vault::bare' })
  assert.equal(refusal.code, 'FORBIDDEN')
  b.send({ type: 'registertrigger', id: 't', trigger_type: 'any', function_id: 'vault::open', config: {} })
  assert.equal((await b.next({ type: 'triggerregistrationresult', id: 't' })).error.code, 'FORBIDDEN')
  await b.close()
})

test('a key that is revoked ends the sessions of its workers at once', async () => {
  const { secret, key } = await create({ name: 'gone', scopes: ['engine:*'] })
  const b = await bare({ address: keyed(secret), name: 'gone' })
  const page = await admin('DELETE', `/api/keys/${key.id}`, { token })
  assert.ok(page === undefined || page.revoked !== false)
  await b.closed
  await assert.rejects(bare({ address: keyed(secret) }), /401/)
})

test('keys are there after the engine was killed', async () => {
  const w = worker('phoenix', { address: keyed(all.secret) })
  await settled(w)
  const id = w.workerId
  await lever('kill')
  await eventually('it has connected again', () => w.workerId !== id && w.connectionState === 'connected')
  await settled(w)
  await assert.rejects(bare(), /401/)
})
