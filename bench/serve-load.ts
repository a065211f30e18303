/** Many clients at once on one server, and what came of their requests. */

import { type Ask, type Outcome, ServeClient } from './serve-client.ts';
import { everydayAsk, HEAVY_ASKS, HOSTILE_ASKS, HUGE_ASKS, type MixOptions, seededRandom } from './serve-mix.ts';
import { readSlowly } from './serve-slow.ts';

export interface LoadOptions extends MixOptions {
  readonly clients: number;
  /** False as soon as no client should ask once more. */
  goesOn(asked: number): boolean;
  /** Pause of the clients with huge prompts and hostile forms between two requests. */
  readonly pauseMs: number;
  readonly huge: boolean;
  readonly hostile: boolean;
  readonly slowReaders: number;
}

export interface LoadResult {
  readonly outcomes: readonly Outcome[];
  readonly problems: readonly string[];
  readonly seconds: number;
}

export async function runLoad(port: number, options: LoadOptions): Promise<LoadResult> {
  const outcomes: Outcome[] = [];
  const problems: string[] = [];
  const begun = performance.now();
  let asked = 0;
  const goesOn = () => options.goesOn(asked);

  /** Asks one after the other, as `next` says. */
  const client = async (name: string, next: () => Ask, pauseMs: number) => {
    const client = new ServeClient(port, name);
    while (goesOn()) {
      asked++;
      const outcome = await client.ask(next());
      // texts are not needed any more
      outcomes.push({ ...outcome, text: '' });
      if (outcome.problem !== null) problems.push(outcome.problem);
      if (pauseMs > 0) await new Promise(resolve => setTimeout(resolve, pauseMs));
    }
    client.close();
  };
  const everyday = Array.from({ length: options.clients }, (_, i) => {
    const random = seededRandom(i + 1);
    return client(`client ${i}`, () => everydayAsk(random, options), 0);
  });
  const inTurn = (asks: readonly Ask[]) => {
    let next = 0;
    return () => asks[next++ % asks.length];
  };
  const others: Promise<void>[] = [];
  if (options.huge) others.push(client('huge', inTurn(HUGE_ASKS), options.pauseMs));
  if (options.hostile) others.push(client('hostile', inTurn([...HEAVY_ASKS, ...HOSTILE_ASKS]), options.pauseMs));
  const slow = Array.from({ length: options.slowReaders }, (_, i) => readSlowly(port, `slow ${i}`));
  await Promise.all([...everyday, ...others]);
  const seconds = (performance.now() - begun) / 1000;
  for (const reader of slow) {
    const problem = reader.stop();
    if (problem !== null) problems.push(problem);
  }
  return { outcomes, problems, seconds };
}
