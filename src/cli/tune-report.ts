/** What tuning found, as people read it. */

import { formatSeconds } from '../common/units.ts';
import type { Profile } from '../tune/profile.ts';
import { median, type Sample, type Trial } from '../tune/search.ts';
import { type Knob, settingsText, settingText } from '../tune/settings.ts';

/** As it was measured, or read from a profile. */
type ReportedTrial = Omit<Trial, 'knob'> & { readonly knob: string };

/** "kept       8 readers                   4.10 -> 4.62 tok/s  +12.7 %   faster" */
export function trialText(trial: ReportedTrial): string {
  const { knob, value, kept, reason, gain, before, after } = trial;
  const what = settingText(knob as Knob, value).padEnd(26);
  if (gain === null) return `${'-'.padEnd(10)}${what}${reason}`;
  const speed = (samples: readonly Sample[]) => significant(median(samples.map(sample => sample.tokensPerSecond)));
  const speeds = `${speed(before)} -> ${speed(after)} tok/s`;
  return `${(kept ? 'kept' : 'discarded').padEnd(10)}${what}${speeds.padEnd(22)}${percent(gain).padStart(8)}  ${reason}`;
}

export function tuneText(profile: Profile, path: string, seconds: number): string {
  const { settings, gain, trials, complete } = profile;
  const kept = settingsText(settings);
  const runs = trials.reduce((sum, trial) => sum + trial.before.length + trial.after.length, 0);
  const dropped = kept === '' && trials.some(trial => trial.kept);
  const lines = [
    '',
    `measured   ${runs} runs in ${formatSeconds(seconds)}${complete ? '' : ', not all that there is to try'}`,
    kept === ''
      ? `kept       nothing: ${dropped ? 'what helped alone did not help together' : 'the engine chose well by itself'}`
      : `kept       ${kept}`,
  ];
  if (kept !== '' && gain !== null) lines.push(`together   ${percent(gain)} against the engine's own choice`);
  lines.push(`saved      ${path}`);
  if (kept !== '') lines.push('           the next runs use it; --no-tuned leaves it out');
  return lines.join('\n');
}

function percent(gain: number): string {
  return `${gain < 0 ? '-' : '+'}${Math.abs(gain * 100).toFixed(1)} %`;
}

function significant(value: number): string {
  return value >= 100 ? value.toFixed(0) : value.toPrecision(3);
}
