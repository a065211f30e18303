/** What tuning found, as people read it. */

import { formatSeconds } from '../common/units.ts';
import type { Profile } from '../tune/profile.ts';
import { medianPair, type Sample, type Trial } from '../tune/search.ts';
import { type Knob, settingsText, settingText } from '../tune/settings.ts';
import { percent, speedFigure } from './report.ts';

const MANY_TIMES = 9;

/** As it was measured, or read from a profile. */
type ReportedTrial = Omit<Trial, 'knob'> & { readonly knob: string };

/** "keep  8 readers                   4.10 -> 4.62 tok/s   +12.7 %  faster": within 80 columns */
export function trialText(trial: ReportedTrial): string {
  const { knob, value, kept, reason, gain, before, after } = trial;
  const what = settingText(knob as Knob, value).padEnd(25);
  if (gain === null) return `${'-'.padEnd(6)}${what}${reason}`;
  return `${(kept ? 'keep' : 'drop').padEnd(6)}${what}${figures(gain, before, after)}  ${reason}`;
}

/** Speeds of the pair of runs that the gain is of. */
function figures(gain: number, before: readonly Sample[], after: readonly Sample[]): string {
  const [a, b] = medianPair(before, after);
  const speeds = `${speedFigure(a.tokensPerSecond)} -> ${speedFigure(b.tokensPerSecond)} tok/s`;
  return `${speeds.padEnd(21)}${signed(gain).padStart(8)}`;
}

/** `path`: where the profile was saved; null = it was not, because nothing was measured. */
export function tuneText(profile: Profile, path: string | null, seconds: number): string {
  const { settings, together, trials, complete } = profile;
  const kept = settingsText(settings);
  const runs = [...trials, ...together].reduce((sum, { before, after }) => sum + before.length + after.length, 0);
  const lines = [
    '',
    `measured   ${runs} runs in ${formatSeconds(seconds)}${complete ? '' : ', not all that there is to try'}`,
  ];
  for (const { settings: tried, kept: helped, gain, before, after } of together) {
    const verdict = helped ? 'they stay' : 'too little: the latest of them goes';
    lines.push(`together   ${settingsText(tried)}`, `           ${figures(gain, before, after)}: ${verdict}`);
  }
  lines.push(`kept       ${kept === '' ? `nothing: ${whyNothing(trials)}` : kept}`);
  if (Object.keys(settings).length > 1 && together.at(-1)?.kept !== true)
    lines.push('           each alone was faster; there was no time to measure them together');
  lines.push(`saved      ${path ?? 'nothing: what an earlier tuning has kept stays'}`);
  if (kept !== '') lines.push('           the next runs use it; --no-tuned leaves it out');
  return lines.join('\n');
}

function whyNothing(trials: readonly ReportedTrial[]): string {
  const isMeasured = trials.some(trial => trial.gain !== null);
  return isMeasured ? 'the engine chose well by itself' : 'no setting was measured to the end';
}

/** "+12.7 %"; what is many times as fast reads better as "x 27.9". */
function signed(gain: number): string {
  if (gain >= MANY_TIMES) return `x ${(gain + 1).toFixed(1)}`;
  return `${gain < 0 ? '-' : '+'}${percent(Math.abs(gain), 1)}`;
}
