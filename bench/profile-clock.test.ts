import { describe, expect, test } from 'vitest';
import { Op } from '../src/kernels/commands.ts';
import { AT, Clock, middleHalf, PHASE_NAMES, phaseOfMatrix, phaseOfOperation } from './profile-clock.ts';

/** A clock whose time is what the test sets. */
function clockAt() {
  const time = { now: 0 };
  return { clock: new Clock(() => time.now), time };
}

describe('clock', () => {
  test('every moment belongs to one phase', () => {
    const { clock, time } = clockAt();
    time.now = 3;
    const outside = clock.switchTo(AT.javascript);
    time.now = 10;
    const inner = clock.switchTo(AT.sampler);
    time.now = 11;
    clock.switchTo(inner);
    time.now = 15;
    clock.switchTo(outside);
    time.now = 20;
    const taken = clock.take();
    expect(taken).toMatchObject({ javascript: 7 + 4, sampler: 1, other: 3 + 5 });
    expect(PHASE_NAMES.reduce((sum, phase) => sum + taken[phase], 0)).toBe(20);
    time.now = 21;
    expect(clock.take()).toMatchObject({ other: 1, javascript: 0 });
  });

  test('a job of all lanes: its start, time between chunks, and the wait at its end', () => {
    const { clock, time } = clockAt();
    clock.switchTo(AT.syncStart);
    for (const [start, end] of [
      [2, 10],
      [13, 20],
    ]) {
      time.now = start;
      const outside = clock.enterKernel(AT.gateUp);
      time.now = end;
      clock.leaveKernel(outside);
    }
    time.now = 25;
    expect(clock.take()).toMatchObject({ syncStart: 2, gateUp: 8 + 7, syncClaim: 3, syncWait: 5 });
  });

  test('a job of one lane has no wait', () => {
    const { clock, time } = clockAt();
    clock.switchTo(AT.dispatch);
    time.now = 1;
    const outside = clock.enterKernel(AT.norms);
    time.now = 4;
    clock.leaveKernel(outside);
    time.now = 6;
    expect(clock.take()).toMatchObject({ dispatch: 1 + 2, norms: 3, syncWait: 0, syncClaim: 0 });
  });
});

describe('phases', () => {
  test('every command has one', () => {
    for (const name of Object.keys(Op)) expect(phaseOfOperation(name), name).not.toBe('unknown');
  });

  test.each([
    ['matmulTiles', null],
    ['attention', 'core'],
    ['swigluQuantise', 'swiglu'],
    ['embed', 'embedding'],
    ['toString', 'unknown'],
  ])('operation %s', (name, phase) => expect(phaseOfOperation(name)).toBe(phase));

  test.each([
    ['attention', 'model.layers.3.self_attn.q_proj.weight', 'qkv'],
    ['attention', 'model.layers.3.self_attn.o_proj.weight', 'output'],
    ['router', 'model.layers.3.mlp.gate.weight', 'router'],
    ['embedding', 'model.embed_tokens.weight', 'head'],
    ['', 'something.new', 'otherMatrices'],
  ])('matrix of role "%s", %s', (role, name, phase) => expect(phaseOfMatrix(role, name)).toBe(phase));
});

test('the middle half leaves out the quickest and the slowest quarter', () => {
  expect(middleHalf([50, 1, 9, 8, 7, 2, 10, 900]).sort()).toEqual([2, 3, 4, 6]);
  expect(middleHalf([5, 4, 6])).toHaveLength(3);
});
