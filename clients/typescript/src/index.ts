/** Client of `limpet serve`: every request of its API, with types. */
import createClient, { type Client, type Middleware } from "openapi-fetch";
import type { components, paths } from "./api.js";

export type { components, paths };
export type Job = components["schemas"]["Job"];
export type Limpet = Client<paths>;

/** What the service says of a request that it refuses (RFC 9457). */
export interface Problem {
  status: number;
  title: string;
  detail?: string;
  expected?: string;
  to_do?: string;
  intact?: string;
}

/** A request that the service refused. */
export class ServiceError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail ?? problem.title);
    this.name = "ServiceError";
  }
}

const refusals: Middleware = {
  async onResponse({ response }) {
    if (response.ok) return undefined;
    const known = response.headers.get("content-type")?.startsWith("application/problem+json");
    throw new ServiceError(
      known ? ((await response.json()) as Problem) : { title: response.statusText, status: response.status },
    );
  },
};

/**
 * Return a client of the service at a URL. Its methods throw a `ServiceError` where the service refuses a request.
 *
 * @param key Sent with every request, where the service has keys.
 */
export function connect(url: string, key?: string): Limpet {
  const headers = key === undefined ? {} : { Authorization: `Bearer ${key}` };
  const client = createClient<paths>({ baseUrl: url.replace(/\/$/, ""), headers });
  client.use(refusals);
  return client;
}

/** Return vectors, all of one length, as the service takes them without a loss: base64 of little-endian float32. */
export function packed(vectors: readonly ArrayLike<number>[]): string {
  const width = vectors[0]?.length ?? 0;
  const view = new DataView(new ArrayBuffer(4 * width * vectors.length));
  vectors.forEach((vector, row) => {
    if (vector.length !== width) throw new RangeError(`Vector ${row} has ${vector.length} numbers, the first ${width}.`);
    for (let place = 0; place < width; place++) view.setFloat32(4 * (row * width + place), vector[place]!, true);
  });
  const bytes = new Uint8Array(view.buffer);
  let text = "";
  for (let from = 0; from < bytes.length; from += 32768) text += String.fromCharCode(...bytes.subarray(from, from + 32768));
  return btoa(text);
}

/** Yield a job of an upgrade each time it has moved on, until it is over. */
export async function* progress(client: Limpet, job: Job): AsyncGenerator<Job> {
  const { data } = await client.GET("/v1/jobs/{name}/events", {
    params: { path: { name: job.id } },
    parseAs: "stream",
  });
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of data as unknown as AsyncIterable<Uint8Array>) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n");
    rest = lines.pop()!;
    for (const line of lines) if (line.startsWith("data: ")) yield JSON.parse(line.slice(6)) as Job;
  }
}
