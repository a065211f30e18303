/** Child process of the conversion tests: kills itself without warning at the n-th progress report. */

import { convertCheckpoint } from '../../src/convert/convert.ts';

const [options, dieAt] = process.argv.slice(2);
let reports = 0;
await convertCheckpoint({
  ...JSON.parse(options),
  onProgress: () => {
    if (++reports === Number(dieAt)) process.kill(process.pid, 'SIGKILL');
  },
});
console.log(reports);
