/** HTTP by hand: requests that no client would send. */

import http from 'node:http';
import net from 'node:net';
import type { Served } from './serve.ts';

export interface RawReply {
  readonly status: number;
  readonly headers: string;
  readonly body: string;
}

/** Sends bytes as they are and reads until the server closes, or one answer with its length is there. */
export function raw(server: Served, text: string | Uint8Array): Promise<RawReply> {
  return new Promise((resolve, reject) => {
    const socket = net.connect(server.port, '127.0.0.1', () => socket.write(text));
    let got = '';
    const done = () => {
      const [headers, ...body] = got.split('\r\n\r\n');
      resolve({ status: Number(headers.split(' ')[1]), headers, body: body.join('\r\n\r\n') });
    };
    socket.setEncoding('utf8');
    socket.on('data', data => {
      got += data;
      const length = Number(/content-length: (\d+)/i.exec(got)?.[1] ?? Number.NaN);
      const at = got.indexOf('\r\n\r\n');
      if (at >= 0 && Buffer.byteLength(got.slice(at + 4)) >= length) {
        socket.destroy();
        done();
      }
    });
    socket.on('close', done);
    socket.on('error', reject);
  });
}

export const request = (line: string, headers: Record<string, string | number> = {}, body = '') => {
  const all = { Host: 'localhost', Connection: 'close', ...headers };
  return `${line} HTTP/1.1\r\n${Object.entries(all)
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join('')}\r\n${body}`;
};

/** A chunked body without an end; gives the answer that came in the middle of it. */
export function sendEndlessly(server: Served): Promise<{ status: number }> {
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json', 'transfer-encoding': 'chunked' };
    const call = http.request({ port: server.port, method: 'POST', path: '/v1/completions', headers }, response => {
      response.resume();
      clearInterval(timer);
      call.destroy();
      resolve({ status: response.statusCode! });
    });
    call.on('error', error => {
      clearInterval(timer);
      reject(error);
    });
    const timer = setInterval(() => call.write(' '.repeat(512 * 1024)), 1);
  });
}
