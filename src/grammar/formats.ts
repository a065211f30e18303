/**
 * Formats of strings as regular expressions, and formats of numbers as bounds. What a schema calls a format is part of the language
 * here; each expression is at least as strict as its RFC.
 */

const DATE =
  '(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))' +
  '|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)';
const TIME = '(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)';
const LABEL = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?';
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
};

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
