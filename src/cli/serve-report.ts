/** What `coli serve` tells about itself. */

import { formatBytes } from '../common/units.ts';
import type { EngineInfo } from '../engine/api.ts';
import { isLoopback } from '../server/hosts.ts';
import type { ServerSettings } from '../server/settings.ts';

/** The first line: where it listens, for whom. */
export function listeningLine({ host, apiKey, modelId }: ServerSettings, urls: readonly string[]): string {
  const reach = isLoopback(host) ? 'this machine only' : 'other machines too';
  const key = apiKey === null ? 'no API key' : 'API key required';
  return `Listening on ${urls.join(' and ')} (${reach}, ${key}); loading ${modelId} ...`;
}

/** When the model is there. */
export function readyLine({ modelId, maxQueue }: ServerSettings, info: EngineInfo): string {
  const slots = info.slots === 1 ? '1 slot' : `${info.slots} slots`;
  const facts = [
    `context ${info.context} tokens`,
    slots,
    `kv ${info.kv}`,
    `queue ${maxQueue}`,
    `${info.kernels} kernels`,
    `at most ${formatBytes(info.plan.total)}`,
  ];
  return `Ready: ${modelId}, ${facts.join(', ')}.`;
}
