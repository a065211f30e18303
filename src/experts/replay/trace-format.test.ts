import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { headerOf, type Lease, traceOf } from './test-support.ts';
import { expertCount, passCount, type Trace, TraceBuilder } from './trace.ts';
import { decodeTrace, encodeHeader, encodeLease, maxLeaseBytes } from './trace-format.ts';

function bytesOf(trace: Trace): Uint8Array {
  const { header, layer, rows, start, ids } = trace;
  const most = maxLeaseBytes(header.experts);
  const lease = new Uint8Array(most);
  const parts: Uint8Array[] = [encodeHeader(header)];
  for (let i = 0; i < layer.length; i++) {
    const count = start[i + 1] - start[i];
    const end = encodeLease(lease, 0, layer[i], rows[i], ids.subarray(start[i]), count, header.experts);
    expect(end).toBeLessThanOrEqual(most);
    parts.push(lease.slice(0, end));
  }
  return Buffer.concat(parts);
}

function sizedLeases(layers: number, experts: number): fc.Arbitrary<[number, number, number[]][]> {
  const ids = fc.uniqueArray(fc.nat(experts - 1), { minLength: 1, maxLength: experts });
  return fc.array(
    fc.tuple(
      fc.nat(layers - 1),
      fc.integer({ min: 1, max: 2 ** 24 }),
      ids.map(list => list.sort((a, b) => a - b)),
    ),
    { maxLength: 12 },
  );
}

function built(layers: number, experts: number, leases: readonly [number, number, number[]][]): Trace {
  const builder = new TraceBuilder(headerOf(layers, experts));
  for (const [layer, rows, ids] of leases) builder.add(layer, rows, ids);
  return builder.build();
}

describe('traces', () => {
  test('come back as they were written, whatever the experts and rows', () => {
    const any = fc.constantFrom(1, 7, 8, 9, 32, 130, 300).chain(n => fc.tuple(fc.constant(n), sizedLeases(3, n)));
    fc.assert(
      fc.property(any, ([experts, leases]) => {
        const trace = built(3, experts, leases);
        expect(decodeTrace(bytesOf(trace), 'x')).toEqual(trace);
      }),
    );
  });

  test('are small: a token of few experts takes a byte for each, a prompt a bit', () => {
    const header = encodeHeader(headerOf(1, 256)).length;
    const all = Array.from({ length: 256 }, (_, i) => i);
    const size = (lease: Lease) => bytesOf(traceOf(1, 256, [lease])).length - header;
    expect(size([0, [3, 40, 41, 90, 100, 127, 200, 255]])).toBe(3 + 8);
    expect(size([0, all])).toBe(4 + 32);
  });

  test('are read up to the last whole lease when whoever wrote them was killed', () => {
    const trace = built(3, 9, [
      [0, 1, [1, 4]],
      [1, 300, [0, 1, 2, 3, 4, 5, 6, 7, 8]],
      [2, 1, [8]],
    ]);
    const bytes = bytesOf(trace);
    const header = encodeHeader(trace.header).length;
    for (let length = header; length < bytes.length; length++) {
      const read = decodeTrace(bytes.subarray(0, length), 'x');
      expect(read.layer).toEqual(trace.layer.subarray(0, read.layer.length));
      expect(read.ids).toEqual(trace.ids.subarray(0, read.ids.length));
      expect(read.isCut || bytesOf(read).length === length).toBe(true);
    }
    expect(decodeTrace(bytes.subarray(0, bytes.length - 1), 'x')).toMatchObject({ isCut: true });
  });

  test('count passes by layers that come again', () => {
    const trace = traceOf(3, 4, [
      [0, [1]],
      [2, [1]],
      [0, [2, 3]],
      [2, [0]],
      [2, [1]],
    ]);
    expect(passCount(trace)).toBe(3);
    expect(expertCount(trace.header)).toBe(12);
  });
});

describe('hostile traces', () => {
  const header = encodeHeader({ model: '', label: '', experts: 9, topK: 2, expertBytes: [10, 0] });
  const withLease = (...bytes: number[]) => Buffer.concat([header, Uint8Array.from(bytes)]);
  const text = (json: unknown) => {
    const body = Buffer.from(typeof json === 'string' ? json : JSON.stringify(json));
    const prefix = Buffer.from('COLITRC1\0\0\0\0', 'latin1');
    prefix.writeUInt32LE(body.length, 8);
    return Buffer.concat([prefix, body]);
  };
  const good = { model: '', label: '', experts: 9, topK: 2, expertBytes: [10] };

  test.each([
    ['nothing', new Uint8Array(), 'is no routing trace'],
    ['another file', Buffer.from('{"a": 1}xxxxxxxx'), 'is no routing trace'],
    ['another version', Buffer.from('COLITRC2....'), 'of another version'],
    ['a header of 4 GB', Buffer.from('COLITRC1\xff\xff\xff\xff', 'latin1'), 'a header of 4294967295 bytes'],
    ['half a header', header.subarray(0, 30), 'ends within its header'],
    ['no length', header.subarray(0, 10), 'ends within its header'],
    ['no experts', text({ ...good, experts: 0 }), 'header field experts'],
    ['a fraction', text({ ...good, experts: 1.5 }), 'header field experts'],
    ['more chosen than there are', text({ ...good, topK: 10 }), 'topK is more than experts'],
    ['an unknown field', text({ ...good, rows: 1 }), 'header field'],
    ['negative bytes', text({ ...good, expertBytes: [-1] }), 'header field expertBytes.0'],
    ['too many layers', text({ ...good, expertBytes: new Array(1025).fill(1) }), 'header field expertBytes'],
    ['a layer that is not there', withLease(2, 1, 2, 0), 'layer 2 does not route'],
    ['a layer without experts', withLease(1, 1, 2, 0), 'layer 1 does not route'],
    ['no rows', withLease(0, 0, 2, 0), '0 rows'],
    ['too many rows', withLease(0, 0xff, 0xff, 0xff, 0xff, 0x0f, 2, 0), 'rows'],
    ['no experts in a lease', withLease(0, 1, 0), '0 experts'],
    ['more experts than there are', withLease(0, 1, 20), '10 experts'],
    ['an expert that is not there', withLease(0, 1, 4, 8, 0), 'expert 9'],
    ['a long number', withLease(0x80, 0x80, 0x80, 0x80, 0x80, 0), 'more than five bytes'],
    ['a bitmap beyond the experts', withLease(0, 1, 7, 3, 2), 'expert 9'],
    ['a bitmap of too many', withLease(0, 1, 7, 15, 0), 'a bitmap of 4 experts where 3'],
    ['a bitmap of too few', withLease(0, 1, 7, 3, 0), 'a bitmap of 2 experts where 3'],
  ])('%s', (_, bytes, message) => {
    expect(() => decodeTrace(bytes, 'T')).toThrow(expect.objectContaining({ code: 'TRACE_INVALID' }));
    expect(() => decodeTrace(bytes, 'T')).toThrow(message);
  });

  test('JSON that is none', () => {
    expect(() => decodeTrace(text('{"a":'), 'T')).toThrow('T');
  });

  test('any bytes behind a good header give a trace or TRACE_INVALID', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), bytes => {
        try {
          const { ids } = decodeTrace(Buffer.concat([header, bytes]), 'T');
          expect(ids.every(id => id < 9)).toBe(true);
        } catch (error) {
          expect(error).toMatchObject({ code: 'TRACE_INVALID' });
        }
      }),
    );
  });
});
