// Functions that are HTTP endpoints, called by the engine. This engine may call loopback addresses without
// TLS; httpguard.test.mjs has one that may not.
import assert from 'node:assert/strict'
import { createHmac } from 'node:crypto'
import { createServer } from 'node:http'
import { after, test } from 'node:test'
import { TriggerAction } from 'iii-sdk'
import { eventually, failure, functions, lever, proxied, settled, worker } from './kit.mjs'

const owner = worker('http-owner')
const caller = worker('http-caller')

/** What the server was asked, newest last, and what it answers by path. */
const asked = []
const answers = {
  '/echo': (r) => [200, JSON.stringify({ method: r.method, got: r.body === '' ? null : JSON.parse(r.body) })],
  '/empty': () => [200, ''],
  '/none': () => [204, ''],
  '/null': () => [200, 'null'],
  '/text': () => [200, 'this is no JSON'],
  '/moved': () => [302, '', { location: '/echo' }],
  '/moved-json': () => [307, '{"moved":true}', { location: '/echo' }],
  '/own-error': () => [422, '{"error":{"code":"CARD_DECLINED","message":"no money"}}'],
  '/half-error': () => [500, '{"error":{"message":"only words"}}'],
  '/teapot': () => [418, 'short and stout'],
  '/broken': () => [503, '{"sorry":true}'],
  '/big': () => [200, JSON.stringify('x'.repeat(1 << 20))],
}
const server = createServer(async (request, response) => {
  const parts = []
  for await (const part of request) parts.push(part)
  const r = { method: request.method, path: request.url, headers: request.headers, body: Buffer.concat(parts).toString() }
  asked.push(r)
  if (r.path === '/never') return
  if (r.path === '/slam') return void request.socket.destroy()
  const [status, body, headers = {}] = answers[r.path](r)
  response.writeHead(status, headers).end(body)
})
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
after(() => (server.closeAllConnections(), server.close()))
const base = `http://127.0.0.1:${server.address().port}`

/** Registers hook::name for a path of the server. */
async function register(name, path, more = {}, by = owner) {
  const ref = by.registerFunction(`hook::${name}`, { url: base + path, ...more })
  await settled(by)
  return ref
}
const call = (name, payload, more) => caller.trigger({ function_id: `hook::${name}`, payload, ...more })
const last = () => asked.at(-1)

await Promise.all([settled(owner), settled(caller)])

test('a call becomes a POST of the payload and its JSON answer the result', async () => {
  await register('echo', '/echo')
  const payload = { a: [1, { b: null }], s: 'späti \u{1f680}' }
  assert.deepEqual(await call('echo', payload), { method: 'POST', got: payload })
  const { headers } = last()
  assert.match(headers['content-type'], /^application\/json/)
  assert.equal(headers['x-iii-function-path'], 'hook::echo')
  assert.match(headers['x-iii-invocation-id'], /^[0-9a-f-]{36}$/)
  assert.ok(Math.abs(Number(headers['x-iii-timestamp']) - Date.now() / 1000) < 60)
  assert.equal(headers['x-iii-signature'], undefined)
  assert.equal(headers.authorization, undefined)
})

test('each method that is allowed is used', async () => {
  for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE']) {
    await register(`by-${method}`, '/echo', { method })
    assert.equal((await call(`by-${method}`, { n: 1 })).method, method)
  }
})

test('the configured headers are sent, and the trace of the call', async () => {
  await register('headers', '/echo', { headers: { 'x-a': 'b', 'x-tenant': 'acme' } })
  await call('headers', {})
  assert.equal(last().headers['x-a'], 'b')
  assert.equal(last().headers['x-tenant'], 'acme')
  assert.match(last().headers['x-iii-trace-id'], /^[0-9a-f]{32}$/)
})

test('bearer auth sends the token from the environment of the engine', async () => {
  await register('bearer', '/echo', { auth: { type: 'bearer', token_key: 'NPM_HTTP_TOKEN' } })
  await call('bearer', {})
  assert.equal(last().headers.authorization, 'Bearer token-of-the-test')
})

test('api_key auth sends its own header', async () => {
  await register('apikey', '/echo', { auth: { type: 'api_key', header: 'X-Api-Key', value_key: 'NPM_HTTP_API_KEY' } })
  await call('apikey', {})
  assert.equal(last().headers['x-api-key'], 'api-key-of-the-test')
})

test('hmac auth signs timestamp and body', async () => {
  await register('hmac', '/echo', { auth: { type: 'hmac', secret_key: 'NPM_HTTP_SECRET' } })
  for (const payload of [{ n: 1 }, 'text', [1, 2, 3], { s: 'späti \u{1f680}' }]) {
    await call('hmac', payload)
    const { headers, body } = last()
    const text = `${headers['x-iii-timestamp']}:${Buffer.from(body).toString('base64')}`
    const mac = createHmac('sha256', 'secret-of-the-test').update(text).digest('hex')
    assert.equal(headers['x-iii-signature'], `sha256=${mac}`)
  }
})

test('a variable that the engine does not have fails the call and names itself', async () => {
  const cases = {
    token_not_found: { type: 'bearer', token_key: 'NPM_HTTP_ABSENT' },
    api_key_not_found: { type: 'api_key', header: 'x-k', value_key: 'NPM_HTTP_ABSENT' },
    secret_not_found: { type: 'hmac', secret_key: 'NPM_HTTP_ABSENT' },
  }
  const before = asked.length
  for (const [code, auth] of Object.entries(cases)) {
    await register(code, '/echo', { auth })
    const error = await failure(call(code, {}))
    assert.equal(error.code, code)
    assert.match(error.message, /NPM_HTTP_ABSENT/)
  }
  assert.equal(asked.length, before, 'nothing was sent')
})

test('no body is no result, and a body of null is null', async () => {
  for (const [path, want] of [['/empty', undefined], ['/none', undefined], ['/null', null]]) {
    await register(path.slice(1), path)
    assert.equal(await call(path.slice(1), {}), want)
  }
})

test('a good answer that is no JSON fails the call', async () => {
  await register('text', '/text')
  assert.equal((await failure(call('text', {}))).code, 'invalid_response')
})

test('a redirect is an answer, and is not followed', async () => {
  await register('moved', '/moved')
  await register('moved-json', '/moved-json')
  assert.equal(await call('moved', {}), undefined)
  assert.deepEqual(await call('moved-json', {}), { moved: true })
  assert.equal(last().path, '/moved-json')
})

test('an error of the endpoint keeps its code and message', async () => {
  await register('own-error', '/own-error')
  const error = await failure(call('own-error', {}))
  assert.deepEqual([error.code, error.message], ['CARD_DECLINED', 'CARD_DECLINED: no money'])
})

test('an error without a shape tells the status', async () => {
  for (const [path, status] of [['/teapot', 418], ['/broken', 503]]) {
    await register(path.slice(1), path)
    const error = await failure(call(path.slice(1), {}))
    assert.equal(error.code, 'http_error')
    assert.match(error.message, new RegExp(`HTTP ${status}`))
  }
  await register('half-error', '/half-error')
  assert.equal((await failure(call('half-error', {}))).code, 'http_error')
})

test('an endpoint that does not answer fails the call after its timeout', async () => {
  await register('never', '/never', { timeout_ms: 200 })
  const began = Date.now()
  const error = await failure(call('never', {}))
  assert.equal(error.code, 'INVOCATION_TIMEOUT')
  assert.match(error.message, /200 ?ms/)
  assert.ok(Date.now() - began < 5_000)
})

test('an endpoint that is not there, or hangs up, fails the call', async () => {
  owner.registerFunction('hook::closed', { url: 'http://127.0.0.1:9/closed' })
  await register('slam', '/slam')
  assert.equal((await failure(call('closed', {}))).code, 'http_request_failed')
  assert.equal((await failure(call('slam', {}))).code, 'http_request_failed')
})

test('a megabyte comes back whole', async () => {
  await register('big', '/big')
  assert.equal((await call('big', {})).length, 1 << 20)
})

test('a void call is sent as well', async () => {
  await register('void', '/echo')
  const before = asked.length
  assert.equal(await call('void', { quiet: true }, { action: TriggerAction.Void() }), undefined)
  await eventually('it arrived', () => asked.slice(before).some((r) => r.body === '{"quiet":true}'))
})

test('200 calls at once each get their own answer', async () => {
  await register('many', '/echo')
  const got = await Promise.all(Array.from({ length: 200 }, (_, n) => call('many', { n })))
  assert.deepEqual(got.map((r) => r.got.n), Array.from({ length: 200 }, (_, n) => n))
})

test('the engine calls, not the worker: the function is listed as its own and answers without the handler', async () => {
  const row = (await functions(caller)).find((f) => f.function_id === 'hook::echo')
  assert.equal(row.worker_name, 'http-owner')
  assert.deepEqual(await owner.trigger({ function_id: 'hook::echo', payload: 1 }), { method: 'POST', got: 1 })
})

test('an HTTP function goes with its worker, and when it is taken back', async () => {
  const leaver = worker('http-leaver')
  await register('leaver', '/echo', {}, leaver)
  const ref = await register('back', '/echo', {}, leaver)
  ref.unregister()
  await settled(leaver)
  assert.equal((await failure(call('back', {}))).code, 'function_not_found')
  assert.equal((await call('leaver', 1)).got, 1)
  await leaver.close()
  await eventually('it is gone', async () => (await failure(call('leaver', {}))).code === 'function_not_found')
})

test('an HTTP function is back after a cut', async () => {
  const w = worker('http-cut', { address: proxied })
  await register('cut', '/echo', {}, w)
  const id = w.workerId
  await lever('cut')
  await eventually('it has connected again', () => w.workerId !== id)
  await settled(w)
  assert.equal((await call('cut', 2)).got, 2)
  await w.close()
})

test('a trigger fires an HTTP function', async () => {
  await register('fired', '/echo')
  const p = worker('http-provider')
  const taken = new Promise((resolve) =>
    p.registerTriggerType(
      { id: 'http-hook', description: '' },
      { registerTrigger: async (b) => resolve(b), unregisterTrigger: async () => {} },
    ),
  )
  owner.registerTrigger({ type: 'http-hook', function_id: 'hook::fired', config: {} })
  const b = await taken
  assert.deepEqual(await p.trigger({ function_id: b.function_id, payload: { event: 1 } }), { method: 'POST', got: { event: 1 } })
})

test('a durable HTTP function has no owner and outlives a restart, until it is removed', async () => {
  const ask = (function_id, payload = {}) => caller.trigger({ function_id, payload })
  const invocation = { url: `${base}/echo`, auth: { type: 'bearer', token_key: 'NPM_HTTP_TOKEN' } }
  const added = await ask('engine::http-functions::add', { function_id: 'hook::durable', invocation, description: 'kept' })
  assert.deepEqual(added, { function_id: 'hook::durable', namespace: 'default', replaced: false })
  assert.equal((await call('durable', 1)).got, 1)
  const id = caller.workerId
  await lever('kill')
  await eventually('it has connected again', () => caller.workerId !== id && caller.connectionState === 'connected')
  assert.equal((await call('durable', 2)).got, 2)
  assert.equal(last().headers.authorization, 'Bearer token-of-the-test')
  const { functions: rows } = await ask('engine::http-functions::list')
  const row = rows.find((f) => f.function_id === 'hook::durable')
  assert.equal(row.description, 'kept')
  assert.equal(row.invocation.auth.token_key, 'NPM_HTTP_TOKEN')
  assert.ok(!JSON.stringify(rows).includes('token-of-the-test'))
  assert.deepEqual(await ask('engine::http-functions::remove', { function_id: 'hook::durable' }), { removed: true })
  assert.equal((await failure(call('durable', 3))).code, 'function_not_found')
})
