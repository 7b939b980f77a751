// Packages of web servers for Node that keep sessions on a server, or messages between web servers:
// `web.js NAME PORT`. Says "done" when all is as it should be.
"use strict";

const assert = require("node:assert");
const { createServer } = require("node:http");
const Redis = require("ioredis");
const { until } = require("./waiting.js");

const [name, port] = [process.argv[2], Number(process.argv[3])];

// Lets a web server listen, and returns its address.
async function listen(server) {
  server.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  return `http://127.0.0.1:${server.address().port}`;
}

async function sessions() {
  const express = require("express");
  const session = require("express-session");
  const { RedisStore } = require("connect-redis");
  const { createClient } = require("redis");
  const client = await createClient({ socket: { host: "127.0.0.1", port } }).connect();
  const store = new RedisStore({ client, prefix: "session:", ttl: 1000 });

  // Two web servers share the sessions.
  const start = () => {
    const app = express();
    app.use(session({ store, secret: "a secret", resave: false, saveUninitialized: false }));
    app.get("/visit", (request, response) => {
      request.session.visits = (request.session.visits ?? 0) + 1;
      response.json(request.session.visits);
    });
    app.get("/leave", (request, response) => request.session.destroy(() => response.json("left")));
    return createServer(app);
  };
  const servers = [start(), start()];
  const addresses = await Promise.all(servers.map(listen));
  let cookie;
  const get = async (address, path) => {
    const response = await fetch(address + path, { headers: cookie ? { cookie } : {} });
    cookie = response.headers.get("set-cookie")?.split(";")[0] ?? cookie;
    return response.json();
  };
  for (let visit = 1; visit <= 20; visit += 1) {
    assert.equal(await get(addresses[visit % 2], "/visit"), visit);
  }
  assert.equal(await store.length(), 1);
  const [id] = await store.ids();
  const left = await client.ttl(`session:${id}`);
  assert.ok(left > 900 && left <= 1000, `the time left: ${left}`);
  assert.equal((await store.all())[0].visits, 20);
  assert.equal(await get(addresses[0], "/leave"), "left");
  assert.equal(await store.length(), 0);
  assert.equal(await get(addresses[1], "/visit"), 1);
  await store.clear();
  assert.equal(await store.length(), 0);
  servers.forEach((server) => server.close());
  client.destroy();
}

// Has two web servers with three clients each exchange messages by an adapter; `adapt` returns one.
async function messages(adapt) {
  const { Server } = require("socket.io");
  const { io: connect } = require("socket.io-client");
  const servers = [];
  const clients = [];
  for (let n = 0; n < 2; n += 1) {
    const http = createServer();
    const server = new Server(http, { adapter: await adapt() });
    server.on("connection", (socket) => socket.on("enter", (room) => socket.join(room)));
    server.on("question", (answer) => answer(`from ${n}`));
    servers.push(server);
    const address = await listen(http);
    for (let m = 0; m < 3; m += 1) {
      const client = connect(address, { transports: ["websocket"], forceNew: true });
      client.heard = [];
      client.on("note", (text) => client.heard.push(text));
      clients.push(client);
    }
  }
  await until("all are connected", () => clients.every((client) => client.connected));
  await until("servers know each other", async () => {
    return (await servers[0].of("/").adapter.serverCount()) === 2;
  });
  assert.equal((await servers[0].fetchSockets()).length, 6);

  // To all, from either server, in the order in which they were sent.
  for (let round = 0; round < 20; round += 1) {
    servers[0].emit("note", `all ${round}`);
  }
  await until("all have heard", () => clients.every((client) => client.heard.length === 20));
  for (const client of clients) {
    assert.deepEqual(client.heard, Array.from({ length: 20 }, (_, round) => `all ${round}`));
    client.heard.length = 0;
  }

  // To a room with a member at each server, but for the third client.
  [0, 2, 5].forEach((n) => clients[n].emit("enter", "room"));
  await until("they are in the room", async () => (await servers[1].in("room").fetchSockets()).length === 3);
  servers[1].to("room").except(clients[2].id).emit("note", "room");
  servers[1].emit("note", "end");
  await until("the end", () => clients.every((client) => client.heard.includes("end")));
  const heard = clients.map((client) => client.heard.filter((text) => text === "room").length);
  assert.deepEqual(heard, [1, 0, 0, 0, 0, 1]);

  const answers = await servers[0].serverSideEmitWithAck("question");
  assert.deepEqual(answers, ["from 1"]);
  await servers[1].in("room").disconnectSockets(true);
  await until("they are disconnected", () => [0, 2, 5].every((n) => !clients[n].connected));
  clients.forEach((client) => client.close());
  await Promise.all(servers.map((server) => server.close()));
}

async function messagesByChannels() {
  const { createAdapter } = require("@socket.io/redis-adapter");
  await messages(async () => createAdapter(new Redis(port), new Redis(port)));
}

async function messagesByShardedChannels() {
  const { createShardedAdapter } = require("@socket.io/redis-adapter");
  await messages(async () => createShardedAdapter(new Redis(port), new Redis(port)));
}

async function messagesByStreams() {
  const { createAdapter } = require("@socket.io/redis-streams-adapter");
  await messages(async () => createAdapter(new Redis(port), { blockTimeInMs: 1000 }));
}

const programs = { sessions, messagesByChannels, messagesByShardedChannels, messagesByStreams };
programs[name]()
  .then(() => {
    console.log("done");
    process.exit(0);
  })
  .catch((error) => {
    console.error(error);
    process.exit(1);
  });
