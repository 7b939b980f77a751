// What ioredis does with a cluster: `cluster.js PORT`. Says "done" when all is as it should be.
"use strict";

const assert = require("node:assert");
const Redis = require("ioredis");

const port = Number(process.argv[2]);
const NODES = 3;

// The client that knows of clusters.
async function aware() {
  const cluster = new Redis.Cluster([{ host: "127.0.0.1", port }]);
  const names = Array.from({ length: 300 }, (_, number) => `name:${number}`);
  for (const name of names) {
    assert.equal(await cluster.set(name, name.toUpperCase()), "OK");
  }
  for (const name of names) {
    assert.equal(await cluster.get(name), name.toUpperCase());
  }
  const masters = cluster.nodes("master");
  assert.equal(masters.length, NODES);
  const counts = await Promise.all(masters.map((node) => node.dbsize()));
  assert.ok(counts.every((count) => count > 0), `keys per node: ${counts}`);

  const tagged = await cluster
    .multi()
    .set("{tag}x", "1")
    .incr("{tag}x")
    .mget("{tag}x", "{tag}y")
    .exec();
  assert.deepEqual(tagged, [
    [null, "OK"],
    [null, 2],
    [null, ["2", null]],
  ]);
  assert.equal(await cluster.mset("{tag}1", "a", "{tag}2", "b"), "OK");
  assert.deepEqual(await cluster.mget("{tag}1", "{tag}2"), ["a", "b"]);
  assert.equal(await cluster.del("{tag}1", "{tag}2", "{tag}x"), 3);

  // Over any slots: the node that is asked coordinates.
  assert.equal(await cluster.mset(...names.flatMap((name) => [name, "new"])), "OK");
  assert.deepEqual(await cluster.mget(...names), names.map(() => "new"));
  assert.equal(await cluster.exists(...names, "absent"), names.length);
  assert.equal(await cluster.del(...names), names.length);
  await cluster.quit();
}

// The client that does not.
async function plain() {
  const client = new Redis({ host: "127.0.0.1", port });
  const names = Array.from({ length: 30 }, (_, number) => `single:${number}`);
  await client.mset(...names.flatMap((name) => [name, "5"]));
  await client.watch(...names);
  const block = client.multi();
  names.forEach((name) => block.incr(name));
  const done = await block.exec();
  assert.deepEqual(done, names.map(() => [null, 6]));
  await client.watch(names[0], names[1]);
  const other = new Redis.Cluster([{ host: "127.0.0.1", port }]);
  await other.set(names[1], "changed");
  assert.equal(await client.multi().set(names[0], "never").exec(), null);
  assert.deepEqual(await client.mget(names[0], names[1]), ["6", "changed"]);
  assert.equal(await client.del(...names), names.length);
  await other.quit();
  await client.quit();
}

aware()
  .then(plain)
  .then(() => console.log("done"))
  .catch((error) => {
    console.error(error);
    process.exit(1);
  });
