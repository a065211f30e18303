/**
 * Formats of strings as regular expressions, and formats of numbers as bounds. What a schema calls a format is part of the language
 * here; each expression is at least as strict as its RFC.
 */

const DATE =
  '(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))' +
  '|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)';
const TIME = '(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)';
/** Up to 62 characters, so that four of them stay below the 253 of a host name. */
const LABEL = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,60}[A-Za-z0-9])?';
const HOST = `${LABEL}(?:\\.${LABEL}){0,3}`;
const BYTE = '(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)';
const IPV4 = `${BYTE}(?:\\.${BYTE}){3}`;
const ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
const CLOCK = '(?:\\d+S|\\d+M(?:\\d+S)?|\\d+H(?:\\d+M(?:\\d+S)?)?)';
const PCHAR = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
const H16 = '[0-9A-Fa-f]{1,4}';

export const STRING_FORMATS: Readonly<Record<string, string>> = {
  date: DATE,
  time: TIME,
  'date-time': `${DATE}T${TIME}`,
  duration: `P(?:(?:\\d+D|\\d+M(?:\\d+D)?|\\d+Y(?:\\d+M(?:\\d+D)?)?)(?:T${CLOCK})?|T${CLOCK}|\\d+W)`,
  email: `${ATOM}(?:\\.${ATOM})*@${LABEL}(?:\\.${LABEL}){1,3}`,
  hostname: HOST,
  ipv4: IPV4,
  ipv6: ipv6(),
  uuid: '[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}',
  uri:
    `[A-Za-z][A-Za-z0-9+.-]*:(?://(?:${HOST}|${IPV4})(?::\\d{1,5})?(?:/${PCHAR}*)*|/?${PCHAR}+(?:/${PCHAR}*)*)` +
    `(?:\\?(?:${PCHAR}|[/?])*)?(?:#(?:${PCHAR}|[/?])*)?`,
  ...namedByLibraries(),
};

/** Formats that are no part of JSON schema: those of zod and Pydantic, as these define them. */
function namedByLibraries(): Record<string, string> {
  const uuid = (version: number) => `[0-9a-f]{8}-[0-9a-f]{4}-${version}[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`;
  const hex = (digits: number) => `[0-9a-fA-F]{${digits}}`;
  const anyText = '[^]*';
  return {
    cuid: '[cC][0-9a-z]{6,}',
    cuid2: '[0-9a-z]+',
    ulid: '[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}',
    nanoid: '[a-zA-Z0-9_-]{21}',
    ksuid: '[A-Za-z0-9]{27}',
    xid: '[0-9a-vA-V]{20}',
    cidrv4: `${IPV4}/(?:[12]?\\d|3[0-2])`,
    cidrv6: `${ipv6()}/(?:12[0-8]|1[01]\\d|[1-9]?\\d)`,
    base64: '(?:[0-9a-zA-Z+/]{4})*(?:[0-9a-zA-Z+/]{2}==|[0-9a-zA-Z+/]{3}=)?',
    base64url: '(?:[0-9a-zA-Z_-]{4})*(?:[0-9a-zA-Z_-]{2,3})?',
    e164: '\\+[1-9]\\d{6,14}',
    mac: '(?:[0-9A-F]{2}:){5}[0-9A-F]{2}|(?:[0-9a-f]{2}:){5}[0-9a-f]{2}',
    hex: '[0-9a-fA-F]*',
    md5_hex: hex(32),
    sha1_hex: hex(40),
    sha256_hex: hex(64),
    sha384_hex: hex(96),
    sha512_hex: hex(128),
    lowercase: '[^A-Z]*',
    uppercase: '[^a-z]*',
    uuid1: uuid(1),
    uuid3: uuid(3),
    uuid4: uuid(4),
    uuid5: uuid(5),
    password: anyText,
    path: anyText,
    'file-path': anyText,
    'directory-path': anyText,
  };
}

/**
 * Parts of a format, for schemas that say more than the format: what no pattern excludes that libraries write beside it, and what
 * keeps to a length (`max` may be Infinity).
 */
export function narrowerFormats(format: string, max: number): string[] {
  if (format === 'email') {
    const name = "[A-Za-z0-9_'+-]";
    const end = '[A-Za-z0-9_+-]';
    const all = `(?:${name}+\\.)*${name}*${end}@(?:${LABEL}\\.){1,3}[A-Za-z]{2,62}`;
    if (max < 40 || max === Number.POSITIVE_INFINITY) return [all];
    const quarter = Math.min(30, Math.floor(max / 4) - 4);
    const label = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,${quarter - 2}}[A-Za-z0-9])?`;
    return [all, `(?:${name}{1,${quarter}}\\.)?${name}{0,${quarter}}${end}@(?:${label}\\.){1,2}[A-Za-z]{2,6}`];
  }
  if (format === 'uri' && max >= 100 && max !== Number.POSITIVE_INFINITY) {
    const host = `${shortLabel(max)}(?:\\.${shortLabel(max)}){0,3}`;
    const rest = Math.min(1000, Math.floor((max / 2 - 20) / 6));
    const tail = `(?:${PCHAR}|[/?]){0,${rest}}`;
    return [`[A-Za-z][A-Za-z0-9+.-]{1,9}://${host}(?::\\d{1,5})?(?:/(?:${PCHAR}|/){0,${rest}})?(?:\\?${tail})?`];
  }
  return [];
}

/** Four of them take less than half of `max`. */
function shortLabel(max: number): string {
  const longest = Math.min(62, Math.floor(max / 8) - 1);
  return `[A-Za-z0-9](?:[A-Za-z0-9-]{0,${longest - 2}}[A-Za-z0-9])?`;
}

/** Eight groups, or fewer with one `::`. */
function ipv6(): string {
  const options = [`${H16}(?::${H16}){7}`];
  for (let before = 0; before <= 7; before++) {
    const left = before === 0 ? '' : `${H16}(?::${H16}){${before - 1}}`;
    const room = 7 - before;
    options.push(room === 0 ? `${left}::` : `${left}::(?:${H16}(?::${H16}){0,${room - 1}})?`);
  }
  return `(?:${options.join('|')})`;
}

/** Sizes of integers as OpenAPI and its generators name them. */
export const NUMBER_FORMATS: Readonly<Record<string, { readonly min?: number; readonly max?: number }>> = {
  int8: { min: -128, max: 127 },
  int16: { min: -32768, max: 32767 },
  int32: { min: -2147483648, max: 2147483647 },
  int64: { min: -(2 ** 63), max: 2 ** 63 },
  int: {},
  uint8: { min: 0, max: 255 },
  uint16: { min: 0, max: 65535 },
  uint32: { min: 0, max: 4294967295 },
  uint64: { min: 0, max: 2 ** 64 },
  uint: { min: 0 },
  float: {},
  double: {},
};
