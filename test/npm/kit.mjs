// What the scripts share: workers that are closed again, a bare socket, and the levers of the Go test
// that started the engine. The SDK is used as npm installs it.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after } from 'node:test'
import { registerWorker } from 'iii-sdk'
import { WebSocket } from 'ws'

/** Where workers connect, straight to the engine. */
export const straight = need('TEST_WORKERS')
/** The same by way of a proxy whose connections the Go test can break. */
export const proxied = need('TEST_PROXY')
/** A second listener, with rules; only some scripts have one. */
export const publicly = process.env.TEST_PUBLIC
const levers = need('TEST_LEVERS')

// The SDK reports every connection on console.debug, which is standard output here: the test's own.
console.debug = () => {}

/** What the SDK has complained of, which is all that it does about some refusals. */
export const complaints = []
console.error = (...words) => complaints.push(words.map(String).join(' '))

function need(name) {
  const value = process.env[name]
  if (!value) throw new Error(`${name} is not set: these scripts are started by npm_test.go`)
  return value
}

const open = new Set()

after(async () => {
  for (const close of open) await close()
})

/** A worker of the SDK without telemetry, closed at the end of the file. */
export function worker(name, { address = straight, ...options } = {}) {
  const w = registerWorker(address, {
    workerName: name,
    otel: { enabled: false },
    reconnectionConfig: { initialDelayMs: 50, maxDelayMs: 200 },
    ...options,
  })
  const close = async () => {
    open.delete(close)
    await w.shutdown()
  }
  open.add(close)
  return Object.assign(w, { close })
}

/** Resolves when the engine has taken in all that w sent before: frames of a connection keep their order. */
export const settled = (w) => w.trigger({ function_id: 'engine::health::check', payload: {} })

/** Calls f until it neither throws nor returns false; fails with the last reason after ten seconds. */
export async function eventually(what, f, ms = 10_000) {
  const end = Date.now() + ms
  for (;;) {
    let last
    try {
      const value = await f()
      if (value !== false) return value
    } catch (error) {
      last = error
    }
    if (Date.now() > end) throw new Error(`not within ${ms} ms: ${what}`, { cause: last })
    await new Promise((r) => setTimeout(r, 20))
  }
}

/** Asks the Go test for something: restart, kill, cut, ghost, mend, paths, metrics. */
export async function lever(name) {
  const answer = await fetch(`${levers}/${name}`, { method: 'POST' })
  const text = await answer.text()
  assert.equal(answer.status, 200, `${name}: ${text}`)
  return text
}

/** An address whose password is a key, which is how the SDK carries one. */
export const keyed = (key, address = straight) => address.replace('ws://', `ws://any:${key}@`)

/** The token that proves a program of this machine; it is another one after each start. */
export const local = async () => (await readFile(join(need('TEST_DATA'), 'auth', 'local.token'), 'utf8')).trim()

/** Asks the admin door; fails with its problem document. */
export async function admin(method, path, { token, body } = {}) {
  const answer = await fetch(need('TEST_ADMIN') + path, {
    method,
    headers: {
      ...(token && { authorization: `Bearer ${token}` }),
      ...(body && { 'content-type': 'application/json' }),
    },
    body: body && JSON.stringify(body),
  })
  const text = await answer.text()
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`)
  return text === '' ? undefined : JSON.parse(text)
}

/** Resolves with the error that a call ends in; fails when it does not. */
export async function failure(promise) {
  let value
  try {
    value = await promise
  } catch (error) {
    return error
  }
  assert.fail(`the call did not fail, it answered ${JSON.stringify(value)}`)
}

/** The listings of the engine as w sees them. */
export const functions = async (w, query = {}) =>
  (await w.trigger({ function_id: 'engine::functions::list', payload: query })).functions
export const workers = async (w, query = {}) =>
  (await w.trigger({ function_id: 'engine::workers::list', payload: query })).workers
export const triggers = async (w, query = {}) =>
  (await w.trigger({ function_id: 'engine::registered-triggers::list', payload: query })).registered_triggers

/** A bare connection that speaks frames, for what the SDK cannot be made to send or show. */
export async function bare({ address = straight, path = '/', name } = {}) {
  const socket = new WebSocket(new URL(path, address))
  const frames = []
  const waiting = []
  const offer = () => {
    for (const w of [...waiting]) {
      const i = frames.findIndex(w.takes)
      if (i >= 0) {
        waiting.splice(waiting.indexOf(w), 1)
        w.resolve(frames.splice(i, 1)[0])
      }
    }
  }
  socket.on('message', (bytes) => {
    frames.push(JSON.parse(bytes.toString()))
    offer()
  })
  const closed = new Promise((resolve) => socket.on('close', (code) => resolve(code)))
  await new Promise((resolve, reject) => {
    socket.on('open', resolve)
    socket.on('error', reject)
  })
  const b = {
    socket,
    frames,
    closed,
    send: (frame) => socket.send(typeof frame === 'string' || Buffer.isBuffer(frame) ? frame : JSON.stringify(frame)),
    /** The first frame, past or to come, that has these members, or that a function says yes to. */
    next: (want) =>
      new Promise((resolve, reject) => {
        const clock = setTimeout(
          () => reject(new Error(`no frame ${JSON.stringify(want) ?? want}; there are ${JSON.stringify(frames)}`)),
          10_000,
        )
        const has = (f) => Object.entries(want).every(([k, v]) => f[k] === v)
        const takes = typeof want === 'function' ? want : has
        waiting.push({ takes, resolve: (f) => (clearTimeout(clock), resolve(f)) })
        offer()
      }),
    /** Sends a ping frame and waits for its pong: everything sent before has been read. */
    echo: async () => {
      b.send({ type: 'ping' })
      await b.next({ type: 'pong' })
    },
    close: async () => {
      open.delete(b.close)
      socket.close()
      await closed
    },
  }
  open.add(b.close)
  if (path === '/') b.hello = await b.next({ type: 'workerregistered' })
  if (name) {
    b.send({
      type: 'invokefunction',
      function_id: 'engine::workers::register',
      data: { runtime: 'bare', version: '0', name, pid: process.pid },
      action: { type: 'void' },
    })
    await b.echo()
  }
  return b
}
