// The SDK with its telemetry on, which is how it comes: one trace through all hops, and a connection of
// its own that is nobody's worker.
import assert from 'node:assert/strict'
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { test } from 'node:test'
import { trace } from '@opentelemetry/api'
import { eventually, lever, proxied, settled, worker, workers } from './kit.mjs'

const here = () => trace.getActiveSpan().spanContext()
const local = worker('telemetry-local', { address: proxied, otel: undefined })
local.registerFunction('telemetry::local', async () => here().traceId)
local.registerFunction('telemetry::outer', async () => ({
  outer: here().traceId,
  same: await local.trigger({ function_id: 'telemetry::local', payload: {} }),
  other: await local.trigger({ function_id: 'telemetry::remote', payload: {} }),
}))
await settled(local)

const child = fork(new URL('./remote.mjs', import.meta.url), { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] })
const [said] = await once(child, 'message')
assert.equal(said, 'ready')

test('one trace goes through nested calls, within a process and across', async () => {
  const ids = await local.trigger({ function_id: 'telemetry::outer', payload: {} })
  assert.match(ids.outer, /^[0-9a-f]{32}$/)
  assert.equal(ids.same, ids.outer)
  assert.equal(ids.other, ids.outer)
  const again = await local.trigger({ function_id: 'telemetry::outer', payload: {} })
  assert.notEqual(again.outer, ids.outer, 'a new call from nowhere is a new trace')
})

test('the telemetry connection is open and is no worker', async () => {
  await eventually('it is open', async () => (await lever('paths')).includes('/otel'))
  const rows = (await workers(local)).filter((r) => r.runtime === 'node')
  assert.deepEqual(rows.map((r) => r.name).sort(), ['telemetry-local', 'telemetry-remote'])
})

test('telemetry that arrives is counted, and calls go on', async () => {
  for (let i = 0; i < 20; i++) await local.trigger({ function_id: 'telemetry::outer', payload: { i } })
  await eventually('the telemetry connection delivered', async () => {
    const [, bytes] = (await lever('paths')).match(/^\/otel (\d+)$/m) ?? []
    return Number(bytes) > 5_000
  })
  assert.equal(typeof (await local.trigger({ function_id: 'telemetry::local', payload: {} })), 'string')
})

test('spans of the SDK and of the engine are both kept', async () => {
  const count = async () => Number((await lever('metrics')).match(/^plinth_telemetry_spans_recorded_total (\d+)$/m)[1])
  const calls = async () => {
    const page = await lever('metrics')
    return [...page.matchAll(/^plinth_calls_total{.*} (\d+)$/gm)].reduce((sum, m) => sum + Number(m[1]), 0)
  }
  await eventually('there are more spans than calls', async () => (await count()) > (await calls()) + 20)
})

test('the other process leaves in peace', async () => {
  child.send('leave')
  const [code] = await once(child, 'exit')
  assert.equal(code, 0)
})
