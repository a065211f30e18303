/** Requests to a server of this process. */

import { expect } from 'vitest';
import { readEvents, type SseEvent } from './sse-reader.ts';

async function post(url: string, route: string, body: object): Promise<Response> {
  const headers = { 'content-type': 'application/json' };
  return fetch(`${url}${route}`, { method: 'POST', headers, body: JSON.stringify(body) });
}

/** The body of an answer that must have the status 200. */
// biome-ignore lint/suspicious/noExplicitAny: bodies are looked at field by field
export async function requestJson(url: string, route: string, body: object): Promise<any> {
  const response = await post(url, route, body);
  const text = await response.text();
  expect(response.status, text).toBe(200);
  return JSON.parse(text);
}

/** The events of a streamed answer. */
export async function requestStream(url: string, route: string, body: object): Promise<SseEvent[]> {
  const response = await post(url, route, { ...body, stream: true });
  const text = await response.text();
  expect(response.status, text).toBe(200);
  return readEvents(text);
}
