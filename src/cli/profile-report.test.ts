import { expect, test } from 'vitest';
import { createTelemetry } from '../telemetry/memory.ts';
import { type Profile, profileOf } from '../telemetry/profile.ts';
import { TelemetryReader } from '../telemetry/reader.ts';
import { profileReport } from './profile-report.ts';

const SPEED = { phi: 1, phi_serial: 1, limit: 'compute', ceiling_us: 1000, serial_us: 1000, measured_us: 1000 };

function report(phi: number): string[] {
  const reader = new TelemetryReader(createTelemetry({ layers: 2, experts: 4, moeLayers: [1] }));
  const limits = { disk_bytes_per_second: null, memory_bytes_per_second: null, compute_us: 1000, readers: 2 };
  const profile = { ...profileOf(reader.sums(), null), speed: { ...SPEED, phi }, limits } as unknown as Profile;
  return profileReport(profile).split('\n');
}

test('a phi of 1 says that the machine looked slower than the answer was', () => {
  const again = '    1: the machine was slower while it was measured; run it again';
  expect(report(1)).toContain(again);
  expect(report(0.99).join()).not.toContain('run it again');
  expect(Math.max(...report(1).map(line => line.length))).toBeLessThanOrEqual(80);
});
