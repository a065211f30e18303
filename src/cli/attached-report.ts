/** What a chat tells about the server that it is attached to and about its answers. */

import type { AnswerFacts } from './attached-answer.ts';
import type { AttachedServer } from './attached-server.ts';
import { count, duration, plural, seedFigure, table } from './report.ts';
import type { AnswerOptions, TalkEnd } from './talker.ts';

/** The first lines of a chat. `version`: of this program. */
export function attachedBanner(version: string, base: string, server: AttachedServer): string[] {
  const other = server.version === version ? '' : ` (colibri ${server.version})`;
  const numbers = server.activations === 'int8' ? '' : `, ${server.activations} activations`;
  const lines = [
    `colibri ${version}, attached to ${base}${other}: ${server.model} (${server.family}, ${count(server.parameters)} parameters)`,
    `context ${server.context} tokens${numbers}; :help lists the commands`,
  ];
  if (server.kv === 'f32') return lines;
  return [...lines, `The server keeps keys and values as ${server.kv}, which changes the numbers.`];
}

/** "23 tokens, 45.1 tok/s, first after 100 ms, 12 of 30 prompt tokens cached" */
export function attachedFooter(facts: AnswerFacts, finish: TalkEnd['finish'], server: AttachedServer): string {
  const { startedMs, firstMs, usage } = facts;
  const parts: string[] = [];
  if (finish === 'cancelled') parts.push('stopped');
  if (finish === 'broken') parts.push('broken off');
  if (usage) parts.push(plural(usage.completionTokens, 'token'));
  const speed = tokensPerSecond(facts);
  if (speed !== null) parts.push(`${speed.toFixed(1)} tok/s`);
  if (firstMs !== null) parts.push(`first after ${duration((firstMs - startedMs) / 1000)}`);
  if (usage) parts.push(`${usage.cachedTokens} of ${plural(usage.promptTokens, 'prompt token')} cached`);
  if (server.activations !== 'int8') parts.push(`${server.activations} activations`);
  if (finish === 'length') {
    const full = usage !== null && usage.promptTokens + usage.completionTokens >= server.context;
    parts.push(full ? `the context of ${server.context} tokens is full` : 'ended at the token limit');
  }
  return parts.join(', ');
}

/** Everything that `:stats` knows. `options`: what was asked for, the seed included. */
export function attachedStatistics(
  facts: AnswerFacts,
  options: AnswerOptions,
  base: string,
  server: AttachedServer,
): string {
  const { startedMs, firstMs, lastMs, usage } = facts;
  const rows = [['server', `${base}, ${server.model}, colibri ${server.version}`]];
  if (usage) {
    const reasoning = usage.reasoningTokens > 0 ? `, ${usage.reasoningTokens} of them reasoning` : '';
    rows.push(
      ['prompt', `${plural(usage.promptTokens, 'token')}, ${usage.cachedTokens} of them cached`],
      ['answer', `${plural(usage.completionTokens, 'token')}${reasoning}`],
    );
  }
  if (firstMs !== null && lastMs !== null) {
    const [first, rest] = [(firstMs - startedMs) / 1000, (lastMs - firstMs) / 1000];
    rows.push(['time', `first after ${duration(first)}, the rest in ${duration(rest)}; measured here`]);
  }
  const { temperature = server.temperature, topP = server.topP, seed } = options;
  rows.push(
    ['compute', `${server.kernels}, ${server.activations} activations, kv ${server.kv}`],
    ['sampling', `temperature ${temperature}, top_p ${topP}${seedFigure({ temperature, seed })}`],
  );
  return table(rows);
}

/** From the first token to the end; null where that is no time or nothing came after the first. */
function tokensPerSecond({ firstMs, lastMs, usage }: AnswerFacts): number | null {
  if (firstMs === null || lastMs === null || usage === null) return null;
  const [tokens, ms] = [usage.completionTokens - 1, lastMs - firstMs];
  return tokens > 0 && ms > 0 ? (1000 * tokens) / ms : null;
}
