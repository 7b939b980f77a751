// node-postgres, as its users run it: `node_postgres.mjs HOST PORT FOLDER`, where FOLDER has the library. Prints
// `ok` if every answer is right.

import assert from "node:assert";
import { createRequire } from "node:module";

const [host, port, folder] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
const pg = require("pg");
const Cursor = require("pg-cursor");

const place = { host, port: Number(port), user: "tester", database: "kumiki" };
const client = new pg.Client(place);
await client.connect();

const rows = async (...query) => (await client.query(...query)).rows;
const row = async (...query) => Object.values((await rows(...query))[0]);

assert.deepStrictEqual(await row("select 1 as a, 'x' as b, null as c, true as d"), ["1", "x", null, true]);

// Parameters, which are sent as texts.
assert.deepStrictEqual(await row("select n_name from nation where n_nationkey = $1", [3]), ["CANADA"]);
assert.deepStrictEqual(await row("select n_nationkey from nation where n_name = $1", ["CANADA"]), ["3"]);
const before = await row("select count(*) from lineitem where l_shipdate <= '1998-09-02'");
assert.deepStrictEqual(await row("select count(*) from lineitem where l_shipdate <= $1", ["1998-09-02"]), before);
const time = new Date(1998, 8, 2, 0, 0, 0);
assert.deepStrictEqual(await row("select count(*) from lineitem where l_shipdate <= $1", [time]), before);
assert.deepStrictEqual(await row("select $1::boolean", [true]), [true]);
assert.deepStrictEqual(await row("select $1::numeric(10,2) + 1", ["100.25"]), ["101.25"]);
assert.deepStrictEqual(await row("select $1::float8", [0.5]), [0.5]);
assert.deepStrictEqual(await row("select $1::text", [null]), [null]);
assert.deepStrictEqual(await row("select $1::bytea", [Buffer.from([0, 255])]), [Buffer.from([0, 255])]);
const moment = new Date("2001-02-03T04:05:06.700Z");
assert.deepStrictEqual(await row("select $1::timestamptz", [moment]), [moment]);
const names = await rows("select n_name from nation where n_nationkey = any($1) order by 1", [[3, 1]]);
assert.deepStrictEqual(names.map((row) => row.n_name), ["ARGENTINA", "CANADA"]);
const typed = await rows("select n_name from nation where n_nationkey = any($1::int8[]) order by 1", [[3, 1]]);
assert.deepStrictEqual(typed, names);

// Arrays as results.
assert.deepStrictEqual(await row("select array['a b', '', 'NULL', null] as a"), [["a b", "", "NULL", null]]);
assert.deepStrictEqual(await row("select array_agg(n_nationkey order by n_nationkey) as a from nation where n_nationkey < 3"), [["0", "1", "2"]]);
assert.deepStrictEqual(await row("select array[1.5::float8, null] as a"), [[1.5, null]]);

// Rows as arrays, several statements, and a statement that is prepared.
const result = await client.query({ text: "select r_regionkey, r_name from region order by 1", rowMode: "array" });
assert.deepStrictEqual(result.rows[0], ["0", "AFRICA"]);
assert.deepStrictEqual(result.fields.map((field) => [field.name, field.dataTypeID]), [["r_regionkey", 20], ["r_name", 25]]);
assert.deepStrictEqual([result.command, result.rowCount], ["SELECT", 5]);
const several = await client.query("select 1 as a; select 2 as b");
assert.strictEqual(several.length, 2);
for (const [key, name] of [[0, "ALGERIA"], [1, "ARGENTINA"]]) {
  const named = { name: "nation", text: "select n_name from nation where n_nationkey = $1", values: [key] };
  assert.deepStrictEqual(await row(named), [name]);
}

// A cursor.
const cursor = client.query(new Cursor("select n_nationkey from nation where n_regionkey >= $1 order by 1", [0]));
assert.deepStrictEqual((await cursor.read(3)).map((row) => row.n_nationkey), ["0", "1", "2"]);
assert.strictEqual((await cursor.read(100)).length, 22);
await cursor.close();

// A transaction, and an error.
await client.query("begin");
await client.query("savepoint a");
await assert.rejects(client.query("select nothing from nation"), (error) => error.code === "42703");
await client.query("rollback to savepoint a");
assert.deepStrictEqual(await row("select 2::int as a"), [2]);
await client.query("commit");
await client.end();

// A pool.
const pool = new pg.Pool({ ...place, max: 2 });
const numbers = await Promise.all([1, 2, 3].map((number) => pool.query("select $1::int as a", [number])));
assert.deepStrictEqual(numbers.map((result) => result.rows[0].a), [1, 2, 3]);
await pool.end();

console.log("ok");
