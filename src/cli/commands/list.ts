/** coli list: the models in the cache. */

import { scanCache } from '../../hub/cache-scan.ts';
import { hubCache } from '../../hub/settings.ts';
import { cacheJson, cacheText } from '../hub-report.ts';
import { writeJson, writeText } from '../output.ts';

export async function list(flags: { json?: boolean }): Promise<number> {
  const cache = hubCache();
  const repos = scanCache(cache);
  if (flags.json) writeJson(cacheJson(cache, repos));
  else writeText(cacheText(cache, repos));
  return 0;
}
