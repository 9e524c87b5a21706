// The other process of telemetry.test.mjs: a worker with telemetry on that says when it is ready.
import { trace } from '@opentelemetry/api'
import { registerWorker } from 'iii-sdk'

console.debug = () => {}
const w = registerWorker(process.env.TEST_WORKERS, { workerName: 'telemetry-remote' })
w.registerFunction('telemetry::remote', async () => trace.getActiveSpan().spanContext().traceId)
await w.trigger({ function_id: 'engine::health::check', payload: {} })
process.on('message', async () => {
  await w.shutdown()
  process.exit(0)
})
process.send('ready')
