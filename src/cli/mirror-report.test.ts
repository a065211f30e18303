import { expect, test } from 'vitest';
import type { MirrorPlan, StageReport, VerifyReport } from '../mirror/types.ts';
import { mirrorPlanJson, stageJson, verifyJson } from './mirror-report.ts';

test('all JSON has the number of its version', () => {
  const plan = {} as MirrorPlan;
  expect(mirrorPlanJson(plan)).toMatchObject({ version: 1 });
  expect(stageJson({ plan } as StageReport)).toMatchObject({ version: 1, plan: { version: 1 } });
  expect(verifyJson({ files: [] } as unknown as VerifyReport)).toMatchObject({ version: 1, ready: false });
});
