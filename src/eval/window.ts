/** Texts are scored in windows, each from an empty session. */

import { RequestError } from '../common/errors.ts';
import type { Engine } from '../engine/api.ts';

/** Throws WINDOW_TOO_LONG when the context of an engine does not hold a window of so many tokens. */
export function requireWindow(window: number, ...engines: readonly Engine[]): void {
  const most = Math.min(...engines.map(engine => engine.info.context));
  if (window <= most) return;
  const allowed = Math.min(...engines.map(engine => engine.info.maxContext));
  throw new RequestError('WINDOW_TOO_LONG', `a window of ${window} tokens needs that much context; it is ${most}`, {
    hint: `use --window ${most} or a larger --ctx (this model allows ${allowed})`,
    details: { window, context: most },
  });
}
