/** Stages a mirror and is killed before a step: killed-stage.ts MODEL DIR STEP FILE. */

import { readModel } from '../../src/engine/model-files.ts';
import { stageMirror } from '../../src/mirror/stage.ts';

const [model, directory, step, file] = process.argv.slice(2);
await stageMirror({
  files: readModel({ model }),
  directory,
  reserveBytes: 0,
  usage: 'off',
  writer: 'test',
  beforeStep: (now, name) => {
    if (now === step && name === file) process.kill(process.pid, 'SIGKILL');
  },
});
