// Functions that are HTTP endpoints, on an engine as it comes: TLS is required, and no address of this
// machine or of a private network is called.
import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { after, test } from 'node:test'
import { bare, failure, settled, worker } from './kit.mjs'

let hits = 0
const server = createServer((_, response) => (hits++, response.end('1')))
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
after(() => server.close())
const { port } = server.address()

const refused = {
  loopback: `https://127.0.0.1:${port}/`,
  'loopback by name': `https://localhost:${port}/`,
  'loopback in IPv6': `https://[::1]:${port}/`,
  'loopback in IPv6 of IPv4': `https://[::ffff:127.0.0.1]:${port}/`,
  'no address': `https://0.0.0.0:${port}/`,
  'private network': 'https://10.0.0.1/',
  'another private network': 'https://192.168.1.1/',
  'address of cloud metadata': 'https://169.254.169.254/latest/',
  'no TLS': 'http://example.com/',
  'no TLS to loopback': `http://127.0.0.1:${port}/`,
}
const impossible = {
  'loopback as a number': `https://2130706433:${port}/`,
  'another scheme': 'file:///etc/passwd',
  'no URL': 'not a url',
}

for (const [what, url] of Object.entries(refused)) {
  test(`${what} is refused before anything is sent`, async () => {
    const owner = worker('guard')
    owner.registerFunction('guard::f', { url, method: 'POST' })
    await settled(owner)
    const error = await failure(owner.trigger({ function_id: 'guard::f', payload: {} }))
    assert.equal(error.code, 'url_validation_failed')
    assert.equal(hits, 0)
    await owner.shutdown()
  })
}

for (const [what, url] of Object.entries(impossible)) {
  test(`${what} is refused when it is registered`, async () => {
    const b = await bare({ name: 'guard' })
    b.send({ type: 'registerfunction', id: 'guard::f', invocation: { url, method: 'POST' } })
    assert.equal((await b.next({ type: 'registrationrejected' })).code, 'url_validation_failed')
    await b.close()
  })
}

test('a name that resolves to a blocked address fails its calls', async () => {
  const owner = worker('guard-name')
  owner.registerFunction('guard::name', { url: `https://ip6-localhost:${port}/` })
  await settled(owner)
  const error = await failure(owner.trigger({ function_id: 'guard::name', payload: {} }))
  assert.ok(['url_validation_failed', 'http_request_failed'].includes(error.code), error.code)
  assert.equal(hits, 0)
})
