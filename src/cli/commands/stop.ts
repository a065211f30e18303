/** coli stop: ends a server that this user has started. */

import { runtimeDirectory } from '../../server/runtime-file.ts';
import { chooseServer, stopServerProcess } from '../../server/stop-server.ts';
import { note } from '../output.ts';

export async function stop({ port }: { port?: number }): Promise<number> {
  const server = chooseServer(runtimeDirectory(), port);
  note(`Stopping ${server.model} on port ${server.port} (process ${server.pid}) ...`);
  await stopServerProcess(server);
  note('Stopped.');
  return 0;
}
