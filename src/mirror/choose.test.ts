import { expect, test } from 'vitest';
import { chooseFiles, type FileGroup } from './choose.ts';

const group = (bytes: number, ...files: number[]): FileGroup => ({ files, bytes });

test('the files that serve most per byte come first', () => {
  const groups = [group(10, 0), group(90, 1), group(100, 2)];
  // file 2 serves most, but for four times the bytes
  const choice = chooseFiles(groups, [100, 100, 400], 600);
  expect(choice).toEqual({ files: [1, 2, 0], share: 1, isLimited: false });
});

test('greedy within the room: what does not fit is passed over, and said', () => {
  const groups = [group(90, 0), group(20, 1), group(10, 2)];
  expect(chooseFiles(groups, [100, 60, 60], 70)).toEqual({ files: [1], share: 20 / 120, isLimited: true });
  expect(chooseFiles(groups, [100, 60, 60], 50)).toEqual({ files: [], share: 0, isLimited: true });
});

test('experts in several files count when all of them are there, and these are chosen together', () => {
  const groups = [group(100, 0, 1), group(30, 2)];
  expect(chooseFiles(groups, [50, 50, 50], 100)).toMatchObject({ files: [0, 1], share: 100 / 130 });
  expect(chooseFiles(groups, [50, 50, 50], 60)).toMatchObject({ files: [2], share: 30 / 130 });
  // one half is there already: the other one is now the better choice
  expect(chooseFiles(groups, [50, 50, 50], 60, [0])).toMatchObject({ files: [0, 1], share: 100 / 130 });
});

test('a file that helps several groups is worth all of them', () => {
  const groups = [group(30, 0), group(30, 0, 1), group(50, 2)];
  expect(chooseFiles(groups, [60, 10, 60], 70)).toMatchObject({ files: [0, 1], share: 60 / 110 });
});

test('files without experts, unused ones and barred ones are not chosen', () => {
  const groups = [group(10, 0), group(0, 1), group(50, 2), group(50, 2, 3)];
  const choice = chooseFiles(groups, [10, 10, 10, 10, 10], 1000, [], new Set([2]));
  expect(choice).toEqual({ files: [0], share: 10 / 110, isLimited: false });
});

test('equal ones in the order of the files', () => {
  const groups = [0, 1, 2, 3].map(file => group(10, file));
  expect(chooseFiles(groups, [5, 5, 5, 5], 15).files).toEqual([0, 1, 2]);
});
