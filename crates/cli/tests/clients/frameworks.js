// What packages for Node keep on a server, or on a cluster by one of its nodes: `frameworks.js NAME PORT`. Says
// "done" when all is as it should be.
"use strict";

const assert = require("node:assert");
const Redis = require("ioredis");

const [name, port] = [process.argv[2], Number(process.argv[3])];
const WORKERS = 8;
const ROUNDS = 25;

// Calls a function many times, several times at once, and returns what it returned.
async function inWorkers(work) {
  const returned = [];
  const worker = async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      returned.push(await work());
    }
  };
  await Promise.all(Array.from({ length: WORKERS }, worker));
  return returned;
}

// Counts in two steps while a lock is held.
async function countsUnderLocks(redlock) {
  let count = 0;
  await inWorkers(() =>
    redlock.using(["guard"], 60000, async () => {
      const read = count;
      await new Promise(setImmediate);
      count = read + 1;
    })
  );
  assert.equal(count, WORKERS * ROUNDS);
}

async function redlock() {
  const { default: Redlock } = require("redlock");
  const client = new Redis({ host: "127.0.0.1", port });
  await countsUnderLocks(new Redlock([client], { retryCount: -1, retryDelay: 2, retryJitter: 2 }));

  const impatient = new Redlock([client], { retryCount: 0 });
  let lock = await impatient.acquire(["one", "two"], 60000);
  await assert.rejects(impatient.acquire(["two"], 60000));
  lock = await lock.extend(120000);
  const left = await client.pttl("two");
  assert.ok(left > 100000 && left <= 120000, `the time left: ${left}`);
  await lock.release();
  assert.equal(await client.exists("one", "two"), 0);
  await client.quit();
}

async function limitsOfExpress(store) {
  const express = require("express");
  const { rateLimit } = require("express-rate-limit");
  const limit = 40;
  const app = express();
  const limiter = rateLimit({ windowMs: 3600000, limit, store, validate: false });
  app.use(limiter);
  app.get("/", (_, response) => response.send("served"));
  const server = app.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const address = `http://127.0.0.1:${server.address().port}/`;
  const get = async () => (await fetch(address)).status;
  const statuses = await inWorkers(get);
  assert.equal(statuses.filter((status) => status === 200).length, limit);
  assert.equal(statuses.filter((status) => status === 429).length, statuses.length - limit);
  await limiter.resetKey("127.0.0.1");
  assert.equal(await get(), 200);
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}

async function expressRateLimit() {
  const { RedisStore } = require("rate-limit-redis");
  const client = new Redis({ host: "127.0.0.1", port });
  const sendCommand = (command, ...args) => client.call(command, ...args);
  await limitsOfExpress(new RedisStore({ prefix: "ioredis:", sendCommand }));
  await client.quit();

  const { createClient } = require("redis");
  const another = await createClient({ url: `redis://127.0.0.1:${port}` }).connect();
  await limitsOfExpress(
    new RedisStore({ prefix: "redis:", sendCommand: (...args) => another.sendCommand(args) })
  );
  await another.close();
}

const ADD = "return {redis.call('incrby', KEYS[1], ARGV[1]), KEYS[1]}";

// Uses a command that is a script, from keys of all nodes.
async function defineCommandWith(client) {
  client.defineCommand("add", { numberOfKeys: 1, lua: ADD });
  const sums = await inWorkers(() => client.add("sum", 2));
  assert.deepEqual(Math.max(...sums.map(([sum]) => sum)), 2 * WORKERS * ROUNDS);
  const names = Array.from({ length: 50 }, (_, number) => `sum:${number}`);
  for (const name of names) {
    assert.deepEqual(await client.add(name, 5), [5, name]);
  }
  const block = await client.multi().add("sum", 1).get("sum").exec();
  const sum = 2 * WORKERS * ROUNDS + 1;
  assert.deepEqual(block, [
    [null, [sum, "sum"]],
    [null, String(sum)],
  ]);
  await client.del("sum", ...names);
  await client.quit();
}

async function defineCommand() {
  await defineCommandWith(new Redis({ host: "127.0.0.1", port }));
}

async function ofCluster() {
  const nodes = [{ host: "127.0.0.1", port }];
  await defineCommandWith(new Redis.Cluster(nodes));
  const { default: Redlock } = require("redlock");
  const cluster = new Redis.Cluster(nodes);
  const options = { retryCount: -1, retryDelay: 2, retryJitter: 2 };
  await countsUnderLocks(new Redlock([cluster], options));
  await cluster.quit();
}

async function scriptsOfNodeRedis() {
  const { createClient, defineScript } = require("redis");
  const add = defineScript({
    NUMBER_OF_KEYS: 1,
    SCRIPT: ADD,
    parseCommand(parser, key, by) {
      parser.pushKey(key);
      parser.push(String(by));
    },
    transformReply: ([sum]) => sum,
  });
  const client = createClient({ url: `redis://127.0.0.1:${port}`, scripts: { add } });
  await client.connect();
  const sums = await inWorkers(() => client.add("sum", 3));
  assert.equal(Math.max(...sums), 3 * WORKERS * ROUNDS);
  await client.scriptFlush();
  assert.equal(await client.add("another", 7), 7);
  assert.deepEqual(await client.multi().add("another", 1).get("another").exec(), [8, "8"]);
  await client.close();
}

// A further argument is the port of the node behind a proxy, which counts the reads.
async function cacheOfNodeRedis() {
  const { createClient } = require("redis");
  const url = `redis://127.0.0.1:${port}`;
  const writer = createClient({ url });
  const counting = createClient({ url: `redis://127.0.0.1:${process.argv[4] ?? port}` });
  const caching = createClient({ url, RESP: 3, clientSideCache: { ttl: 0, maxEntries: 0 } });
  await Promise.all([writer.connect(), caching.connect(), counting.connect()]);
  const keys = Array.from({ length: 50 }, (_, n) => `key:${n}`);
  const reads = async () => /keyspace_hits:(\d+)/.exec(await counting.info("stats"))[1];
  for (let number = 0; number < 20; number += 1) {
    await writer.mSet(keys.map((key) => [key, String(number)]));
    for (const key of keys) {
      const until = Date.now() + 20000;
      while ((await caching.get(key)) !== String(number)) {
        assert.ok(Date.now() < until, `${key} is never ${number}`);
        await new Promise(setImmediate);
      }
    }
  }
  // Through a proxy, the news of a change may come behind a read that has seen it.
  for (let tries = 1; ; tries += 1) {
    const before = await reads();
    for (const key of keys) {
      assert.equal(await caching.get(key), "19");
    }
    if ((await reads()) === before) {
      break;
    }
    assert.ok(process.argv[4] && tries < 100, "values are not kept");
  }
  await Promise.all([writer.close(), caching.close(), counting.close()]);
}

const TESTS = {
  redlock,
  expressRateLimit,
  defineCommand,
  scriptsOfNodeRedis,
  cacheOfNodeRedis,
  ofCluster,
};

TESTS[name]()
  .then(() => console.log("done"))
  .catch((error) => {
    console.error(error);
    process.exit(1);
  });
