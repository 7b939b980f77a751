// Waiting for conditions, in the programs of this directory.
"use strict";

const assert = require("node:assert");

// Milliseconds after which a condition counts as one that never holds.
const PATIENCE = 60000;

const sleep = (time) => new Promise((resolve) => setTimeout(resolve, time));

async function until(what, condition) {
  const end = Date.now() + PATIENCE;
  while (!(await condition())) {
    assert.ok(Date.now() < end, `never: ${what}`);
    await sleep(10);
  }
}

module.exports = { PATIENCE, sleep, until };
