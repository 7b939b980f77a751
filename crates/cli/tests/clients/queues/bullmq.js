// BullMQ: queues, and the workers that execute their jobs: `bullmq.js NAME PORT`. Says "done" when all is as it
// should be.
"use strict";

const assert = require("node:assert");
const { fork } = require("node:child_process");
const { FlowProducer, Queue, QueueEvents, Worker } = require("bullmq");
const Redis = require("ioredis");
const { PATIENCE, until } = require("./waiting.js");

const [name, port] = [process.argv[2], Number(process.argv[3])];
const connection = { host: "127.0.0.1", port, maxRetriesPerRequest: null };
const client = new Redis(connection);
// The jobs of a worker that is silent for a second are given to others, as often as that happens.
const impatient = {
  connection,
  concurrency: 3,
  lockDuration: 1000,
  stalledInterval: 500,
  maxStalledCount: 1000,
};

// Counts one more execution of a job.
const done = (job) => client.hincrby("done", job, 1);

// Checks that exactly these jobs have been done, each of them once, and forgets them.
async function checkDoneOnce(jobs) {
  assert.deepEqual(await client.hgetall("done"), Object.fromEntries(jobs.map((job) => [job, "1"])));
  await client.del("done");
}

const isOver = (count) => async () => Number(await client.hlen("done")) === count;

async function add(job) {
  await done(job.name);
  return job.data.one + job.data.other;
}

const sums = (from, to, opts) =>
  Array.from({ length: to - from }, (_, n) => ({
    name: `${from + n} + 1`,
    data: { one: from + n, other: 1 },
    opts,
  }));

async function jobs() {
  const queue = new Queue("sums", { connection });
  const workers = [1, 2].map(() => new Worker("sums", add, { connection, concurrency: 4 }));
  const asked = await queue.addBulk(sums(0, 100));
  await until("the sums", async () => (await queue.getCompletedCount()) === 100);
  await checkDoneOnce(sums(0, 100).map((job) => job.name));
  for (const job of asked) {
    assert.equal((await queue.getJob(job.id)).returnvalue, job.data.one + 1);
  }

  for (let round = 0; round < 2; round += 1) {
    await queue.add("unique", { one: 1, other: 1 }, { jobId: "unique" });
  }
  await until("the unique job", async () => (await queue.getCompletedCount()) === 101);
  assert.equal(await queue.count(), 0);
  await checkDoneOnce(["unique"]);

  const begun = Date.now();
  await queue.add("later", { one: 2, other: 2 }, { delay: 500 });
  assert.equal(await queue.getDelayedCount(), 1);
  await until("a job later", isOver(1));
  assert.ok(Date.now() - begun >= 490, "it was not postponed");
  await checkDoneOnce(["later"]);

  await queue.pause();
  const paused = await queue.addBulk(sums(0, 10));
  await paused[3].remove();
  assert.deepEqual([await queue.isPaused(), await queue.count(), await client.hlen("done")], [true, 9, 0]);
  await queue.resume();
  await until("the jobs of a paused queue", isOver(9));
  await checkDoneOnce(sums(0, 10).flatMap((job, n) => (n === 3 ? [] : [job.name])));
  await Promise.all(workers.map((worker) => worker.close()));
  await queue.obliterate();
  assert.deepEqual(await client.keys("bull:sums:*"), []);
  await queue.close();
}

async function failures() {
  const queue = new Queue("failures", { connection });
  const work = async (job) => {
    if (job.attemptsMade < job.data.failures) {
      throw new Error("on purpose");
    }
    return job.attemptsMade;
  };
  const worker = new Worker("failures", work, { connection });
  const opts = { attempts: 3, backoff: { type: "fixed", delay: 10 } };
  const good = await queue.add("two failures", { failures: 2 }, opts);
  const bad = await queue.add("three failures", { failures: 3 }, opts);
  await until("both end", async () => (await good.isCompleted()) && (await bad.isFailed()));
  assert.equal((await queue.getJob(good.id)).returnvalue, 2);
  assert.equal((await queue.getJob(bad.id)).failedReason, "on purpose");
  await bad.retry();
  await until("the failed job ends well", () => bad.isCompleted());
  await worker.close();
  await queue.close();
}

async function priorities() {
  const queue = new Queue("urgent", { connection });
  for (const priority of [3, 1, 2]) {
    await queue.add(`priority ${priority}`, {}, { priority });
  }
  const order = [];
  const worker = new Worker("urgent", async (job) => order.push(job.name), { connection });
  await until("all are done", async () => order.length === 3);
  assert.deepEqual(order, ["priority 1", "priority 2", "priority 3"]);
  await worker.close();
  await queue.close();
}

async function repetitions() {
  const queue = new Queue("ticks", { connection });
  const worker = new Worker("ticks", (job) => done(job.id), { connection });
  await queue.upsertJobScheduler("tick", { every: 200, limit: 3 });
  await until("all ticks", async () => (await queue.getCompletedCount()) === 3);
  await until("the end of the scheduler", async () => (await queue.getDelayedCount()) === 0);
  const ticks = await client.hgetall("done");
  assert.deepEqual(Object.values(ticks), ["1", "1", "1"]);
  await client.del("done");
  await worker.close();
  await queue.close();
}

async function flows() {
  const total = async (job) => {
    await done(job.name);
    const values = Object.values(await job.getChildrenValues());
    return values.reduce((one, other) => one + other, 0);
  };
  const workers = [
    new Worker("children", add, { connection, concurrency: 4 }),
    new Worker("parents", total, { connection }),
  ];
  const flow = new FlowProducer({ connection });
  const children = sums(0, 10).map((job) => ({ ...job, queueName: "children" }));
  const { job } = await flow.add({ name: "total", queueName: "parents", children });
  await until("the parent ends", () => job.isCompleted());
  const queue = new Queue("parents", { connection });
  assert.equal((await queue.getJob(job.id)).returnvalue, 55);
  await checkDoneOnce(["total", ...children.map((child) => child.name)]);
  await Promise.all(workers.map((worker) => worker.close()));
  await queue.close();
  await flow.close();
}

async function all() {
  await jobs();
  await failures();
  await priorities();
  await repetitions();
  await flows();
}

async function events() {
  const queue = new Queue("events", { connection });
  const heard = new QueueEvents("events", { connection });
  await heard.waitUntilReady();
  const completed = [];
  heard.on("completed", ({ jobId }) => completed.push(jobId));
  const worker = new Worker("events", add, { connection, concurrency: 4 });
  // The first event shows that the events of this client have begun.
  const first = await queue.add("first", { one: 1, other: 1 });
  assert.equal(await first.waitUntilFinished(heard, PATIENCE), 2);
  const asked = await queue.addBulk(sums(0, 50));
  const found = await Promise.all(asked.map((job) => job.waitUntilFinished(heard, PATIENCE)));
  assert.deepEqual(found, asked.map((job) => job.data.one + 1));
  await until("all events", async () => completed.length >= 50);
  assert.equal(new Set(completed).size, completed.length, "an event came twice");
  await heard.close();
  await worker.close();
  await queue.close();
}

// The process that is killed: it executes one job after the other, and never ends the job `hang`.
function victim() {
  // It ends with the program that started it.
  process.on("disconnect", () => process.exit(1));
  const hang = async (job) => {
    await done(job.name);
    if (job.name === "hang") {
      await new Promise(() => {});
    }
  };
  new Worker("kills", hang, impatient);
}

async function kills() {
  const queue = new Queue("kills", { connection });
  await queue.addBulk([...sums(0, 20), { name: "hang", data: { one: 1, other: 1 } }, ...sums(20, 40)]);
  const child = fork(__filename, ["victim", String(port)]);
  await until("a job hangs", () => client.hexists("done", "hang"));
  child.kill("SIGKILL");
  const worker = new Worker("kills", add, impatient);
  await until("all jobs end", async () => (await queue.getCompletedCount()) === 41);
  const counts = await queue.getJobCounts("failed", "active", "wait", "delayed");
  assert.deepEqual(counts, { failed: 0, active: 0, wait: 0, delayed: 0 });
  assert.equal(await client.hlen("done"), 41);
  await worker.close();
  await queue.close();
}

const programs = { all, events, kills, victim };
Promise.resolve(programs[name]())
  .then(() => {
    if (name !== "victim") {
      console.log("done");
      process.exit(0);
    }
  })
  .catch((error) => {
    console.error(error);
    process.exit(1);
  });
