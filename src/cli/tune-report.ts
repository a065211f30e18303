/** What tuning found, as people read it. */

import { median } from '../common/median.ts';
import { formatSeconds } from '../common/units.ts';
import type { Profile } from '../tune/profile.ts';
import type { Sample, Trial } from '../tune/search.ts';
import { type Knob, settingsText, settingText } from '../tune/settings.ts';
import { percent, speedFigure } from './report.ts';

/** As it was measured, or read from a profile. */
type ReportedTrial = Omit<Trial, 'knob'> & { readonly knob: string };

/** "kept       8 readers                   4.10 -> 4.62 tok/s  +12.7 %   faster" */
export function trialText(trial: ReportedTrial): string {
  const { knob, value, kept, reason, gain, before, after } = trial;
  const what = settingText(knob as Knob, value).padEnd(26);
  if (gain === null) return `${'-'.padEnd(10)}${what}${reason}`;
  const speed = (samples: readonly Sample[]) => speedFigure(median(samples.map(sample => sample.tokensPerSecond)));
  const speeds = `${speed(before)} -> ${speed(after)} tok/s`;
  return `${(kept ? 'kept' : 'discarded').padEnd(10)}${what}${speeds.padEnd(22)}${signed(gain).padStart(8)}  ${reason}`;
}

/** `path`: where the profile was saved; null = it was not, because nothing was measured. */
export function tuneText(profile: Profile, path: string | null, seconds: number): string {
  const { settings, gain, trials, complete } = profile;
  const kept = settingsText(settings);
  const runs = trials.reduce((sum, trial) => sum + trial.before.length + trial.after.length, 0);
  const lines = [
    '',
    `measured   ${runs} runs in ${formatSeconds(seconds)}${complete ? '' : ', not all that there is to try'}`,
    `kept       ${kept === '' ? `nothing: ${whyNothing(trials)}` : kept}`,
  ];
  if (kept !== '' && gain !== null) lines.push(`together   ${signed(gain)} against the engine's own choice`);
  lines.push(`saved      ${path ?? 'nothing: what an earlier tuning has kept stays'}`);
  if (kept !== '') lines.push('           the next runs use it; --no-tuned leaves it out');
  return lines.join('\n');
}

function whyNothing(trials: readonly ReportedTrial[]): string {
  if (trials.some(trial => trial.kept)) return 'what helped alone did not help together';
  const isMeasured = trials.some(trial => trial.gain !== null);
  return isMeasured ? 'the engine chose well by itself' : 'no setting was measured to the end';
}

function signed(gain: number): string {
  return `${gain < 0 ? '-' : '+'}${percent(Math.abs(gain), 1)}`;
}
