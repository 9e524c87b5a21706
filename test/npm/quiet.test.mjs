// The SDK with its telemetry off: no telemetry connection, and the trace of a caller still goes on.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bare, lever, proxied, settled, worker } from './kit.mjs'

const host = worker('quiet-host', { address: proxied })
host.registerFunction('quiet::f', async () => 'f')
await settled(host)

test('nothing but the worker connection is opened', async () => {
  assert.deepEqual((await lever('paths')).trim().split('\n').map((l) => l.split(' ')[0]), ['/'])
})

test('the answer to a traced call carries its trace', async () => {
  const caller = await bare({ name: 'quiet-caller' })
  const trace = '4bf92f3577b34da6a3ce929d0e0e4736'
  caller.send({
    type: 'invokefunction',
    invocation_id: 'q',
    function_id: 'quiet::f',
    data: {},
    traceparent: `00-${trace}-00f067aa0ba902b7-01`,
    baggage: 'k=v',
  })
  const answer = await caller.next({ invocation_id: 'q' })
  assert.equal(answer.result, 'f')
  if (answer.traceparent !== undefined) assert.equal(answer.traceparent.split('-')[1], trace)
})

test('calls of a worker without telemetry are traced by the engine', async () => {
  const spy = await bare({ name: 'quiet-spy' })
  spy.send({ type: 'registerfunction', id: 'quiet::spy' })
  await spy.echo()
  const answered = host.trigger({ function_id: 'quiet::spy', payload: 1 })
  const frame = await spy.next({ type: 'invokefunction' })
  assert.match(frame.traceparent, /^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/)
  spy.send({ type: 'invocationresult', invocation_id: frame.invocation_id, function_id: 'quiet::spy', result: 2 })
  assert.equal(await answered, 2)
})
