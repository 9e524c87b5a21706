import { registerWorker } from 'iii-sdk'

const worker = registerWorker(process.env.III_URL ?? 'ws://localhost:49134', {
  workerName: 'hello-node',
})

worker.registerFunction('hello::greet', async ({ name }) => {
  return { message: `Hello, ${name}!` }
})
