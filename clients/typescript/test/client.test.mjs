/** The client asks a running service, whose URL and key are LIMPET_URL and LIMPET_KEY; see tests/service. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ServiceError, connect, packed, progress } from "../dist/index.js";

const client = connect(process.env.LIMPET_URL, process.env.LIMPET_KEY);
const vector = (/** @type {number} */ place) => Array.from({ length: 8 }, (_, at) => (at === place ? 1 : 0));

test("an item that was written is found, and gone when it is deleted", async () => {
  const body = { ids: ["from node"], vectors: { g1: packed([vector(3)]) }, metadata: { price: [7] } };
  const params = { header: { "Idempotency-Key": "node-1" } };
  const first = await client.POST("/v1/items", { body, params });
  assert.deepEqual((await client.POST("/v1/items", { body, params })).data, first.data);
  for (const vectors of [[vector(3)], packed([vector(3)])]) {
    const { data } = await client.POST("/v1/search", { body: { vectors, k: 1, where: "price=7", exact: true } });
    assert.equal(data.hits[0][0].id, "from node");
    assert.equal(data.hits[0][0].score, 1);
  }
  const query = { id: ["from node"] };
  assert.deepEqual((await client.GET("/v1/items", { params: { query } })).data.items[0].metadata, { price: 7 });
  await client.DELETE("/v1/items", { params: { query } });
  assert.deepEqual((await client.GET("/v1/items", { params: { query } })).data.unknown, ["from node"]);
});

test("a refusal says what to do", async () => {
  const asked = client.POST("/v1/search", { body: { vectors: [vector(0)], k: 1, exact: true, model: "declared:nobody" } });
  await assert.rejects(asked, (error) => {
    assert(error instanceof ServiceError);
    assert.equal(error.problem.status, 409);
    assert.match(error.message, /nobody/);
    return true;
  });
  await assert.rejects(connect(process.env.LIMPET_URL, "wrong").GET("/v1"), (error) => error.problem.status === 401);
});

test("a step of an upgrade is a job whose progress is told", async () => {
  const { data: before } = await client.GET("/v1/upgrade");
  const stale = client.POST("/v1/upgrade/{step}", {
    params: { path: { step: "gc" }, header: { "if-match": "another epoch" } }, body: {},
  });
  await assert.rejects(stale, ServiceError);
  const { data: job } = await client.POST("/v1/upgrade/{step}", {
    params: { path: { step: "gc" }, header: { "if-match": before.epoch } }, body: {},
  });
  let last;
  for await (const told of progress(client, job)) last = told;
  assert.equal(last.status, "done");
});

test("vectors of two lengths are not packed", () => {
  assert.throws(() => packed([[1, 2], [1]]), RangeError);
});
