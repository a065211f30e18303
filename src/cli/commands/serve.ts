/** coli serve: one model behind HTTP, until a signal ends it. */

import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { keepHeapsSmall } from '../../common/heap.ts';
import { processId } from '../../common/process-lock.ts';
import type { Engine } from '../../engine/api.ts';
import { nameOfSnapshot } from '../../hub/find-model.ts';
import { AdmissionQueue } from '../../server/admission.ts';
import { DIALECTS } from '../../server/dialects.ts';
import { checkBind } from '../../server/hosts.ts';
import { type RunningServer, startServer } from '../../server/lifecycle.ts';
import { SERVER_RESERVE_BYTES } from '../../server/overhead.ts';
import { runningServers, runtimeDirectory, writeRuntimeFile } from '../../server/runtime-file.ts';
import { DEFAULT_SETTINGS, type ServerSettings } from '../../server/settings.ts';
import { ModelState } from '../../server/state.ts';
import { createTurnRunner } from '../../server/turns.ts';
import { tellMemory } from '../memory-report.ts';
import { modelDirectory, openModel, packageVersion } from '../model.ts';
import { becomeLog, note } from '../output.ts';
import { checkServeFlags, type ServeFlags, serverSettings } from '../serve-options.ts';
import { listeningLine, readyLine } from '../serve-report.ts';
import { StopSignals } from '../stop-signals.ts';

const TOKEN_BYTES = 32;

export async function serve(flags: ServeFlags): Promise<number> {
  const signals = new StopSignals();
  signals.listen();
  const { host = DEFAULT_SETTINGS.host, apiKey = null, insecure = false } = flags;
  const warnings = checkBind({ host, apiKey, insecure });
  checkServeFlags(flags);
  const log = becomeLog();
  const model = modelDirectory(flags, false);
  const settings = serverSettings(flags, nameOfSnapshot(model) ?? path.basename(path.resolve(model)), packageVersion());
  for (const warning of warnings) note(warning);
  const queue = new AdmissionQueue({ ...settings, capacity: settings.slots });
  const state = new ModelState();
  const token = randomBytes(TOKEN_BYTES).toString('base64url');
  const directory = findRuntimeDirectory();
  const server = await startServer({
    settings,
    state,
    queue,
    token,
    dialects: DIALECTS,
    logger: { level: flags.logLevel ?? 'info', stream: log },
    others: () => (directory === null ? [] : runningServers(directory)),
  });
  leaveRuntimeFile(directory, settings, server, token);
  // the port is taken first; but it is told when the plan stands, for what the plan refuses never gets to serve
  const tell = once(() => note(listeningLine(settings, server.urls)));
  const opening = openModel({ ...flags, model }, false, {
    reserveBytes: SERVER_RESERVE_BYTES,
    constraints: true,
    onProgress: progress => {
      tell();
      state.progress(progress);
    },
  });
  let engine: Engine | null = null;
  try {
    engine = await Promise.race([opening, signals.first.then(() => null)]);
    if (engine === null) return 0;
    tell();
    state.ready(engine, createTurnRunner({ engine, admission: queue }));
    keepHeapsSmall();
    note(readyLine(settings, engine.info));
    await signals.first;
    note(`Stopping: running requests have ${settings.graceMs / 1000} seconds; the same signal again ends them now.`);
    return 0;
  } catch (error) {
    state.fail(error);
    throw error;
  } finally {
    await server.stop(settings.graceMs);
    // an engine that is still being opened ends with the process
    if (engine) tellMemory(engine.info.plan, false);
    await engine?.close();
  }
}

function once(action: () => void): () => void {
  let isDone = false;
  return () => {
    if (!isDone) action();
    isDone = true;
  };
}

/** Null, and a line about it, when there is no place for such files: the server itself does not need one. */
function findRuntimeDirectory(): string | null {
  try {
    return runtimeDirectory();
  } catch (error) {
    note(`${(error as Error).message}; coli stop will not find this server`);
    return null;
  }
}

function leaveRuntimeFile(
  directory: string | null,
  { host, modelId, graceMs }: ServerSettings,
  { port }: RunningServer,
  token: string,
): void {
  if (directory === null) return;
  const remove = writeRuntimeFile(directory, { ...processId(), host, port, token, model: modelId, graceMs });
  // also when a second signal ends the process at once
  process.once('exit', remove);
}
