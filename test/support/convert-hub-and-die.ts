/** Child process of the tests of conversions from the hub: kills itself without warning at the n-th progress report. */

import { convertCheckpoint } from '../../src/convert/convert.ts';
import { openHubSource } from '../../src/convert/hub-source.ts';

const [sourceOptions, options, dieAt] = process.argv.slice(2);
let reports = 0;
const report = (): void => {
  if (++reports === Number(dieAt)) process.kill(process.pid, 'SIGKILL');
};
const source = await openHubSource({ ...JSON.parse(sourceOptions), onProgress: report });
await convertCheckpoint({ ...JSON.parse(options), source, onProgress: report });
console.log(reports);
