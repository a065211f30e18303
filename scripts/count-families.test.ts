import { expect, test } from 'vitest';
import { modelTypes } from '../src/models/registry.ts';
import { familyFiles, MAX_FAMILY_LINES } from './count-families.ts';

test('every registered family has a file, and none has outgrown it', () => {
  const files = familyFiles();
  expect(files.flatMap(({ types }) => types).sort()).toEqual([...modelTypes].sort());
  for (const { name, lines } of files) expect(lines, name).toBeLessThanOrEqual(MAX_FAMILY_LINES);
});
