/** Which file system a path lies on, and on what kind of disk: from /proc/self/mountinfo and /sys. Linux only. */

import { realpathSync } from 'node:fs';
import { join, sep } from 'node:path';
import { readText } from './machine.ts';

export interface Mount {
  readonly point: string;
  /** "ext4", "nfs4", "fuse.sshfs" */
  readonly type: string;
  readonly source: string;
  /** "259:2"; of no use for file systems that span disks. */
  readonly device: string;
  readonly readOnly: boolean;
  /** A disk with moving parts; null when nobody tells. Disks of virtual machines call themselves so whatever they are: null too. */
  readonly rotational: boolean | null;
}

/** The mount below which `path`, links followed, lies; null where the system does not tell. */
export function mountOf(path: string, root = '/'): Mount | null {
  const real = realpathSync(path);
  const lines = (readText(root, 'proc/self/mountinfo') ?? '').split('\n');
  let best: Mount | null = null;
  for (const line of lines) {
    const mount = parseMount(line, root);
    if (mount === null || !isBelow(real, mount.point)) continue;
    // of two on one point the later one hides the other
    if (best === null || mount.point.length >= best.point.length) best = mount;
  }
  return best;
}

function isBelow(path: string, point: string): boolean {
  return path === point || path.startsWith(point.endsWith(sep) ? point : point + sep);
}

/** "36 35 98:0 /root /point rw,noatime master:1 - ext4 /dev/sda1 rw": optional fields end with a dash. */
function parseMount(line: string, root: string): Mount | null {
  const [before, after] = line.split(' - ');
  const [, , device, , point, options] = before.split(' ');
  const [type, source] = after?.split(' ') ?? [];
  if (point === undefined || type === undefined) return null;
  return {
    point: unescaped(point),
    type,
    source: unescaped(source ?? ''),
    device,
    readOnly: options.split(',').includes('ro'),
    rotational: rotational(device, root),
  };
}

/** Blanks, tabs, line feeds and backslashes stand as octal numbers. */
function unescaped(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, octal) => String.fromCharCode(Number.parseInt(octal, 8)));
}

function rotational(device: string, root: string): boolean | null {
  if (!/^\d+:\d+$/.test(device) || isVirtual(device, root)) return null;
  // a partition has no queue of its own, the disk above it has
  for (const place of [`sys/dev/block/${device}/queue`, `sys/dev/block/${device}/../queue`]) {
    const text = readText(root, `${place}/rotational`)?.trim();
    if (text === '0' || text === '1') return text === '1';
  }
  return null;
}

function isVirtual(device: string, root: string): boolean {
  try {
    return /\/(?:virtio\d|vbd-|xen|vmbus)/i.test(realpathSync(join(root, 'sys/dev/block', device)));
  } catch {
    return false;
  }
}
