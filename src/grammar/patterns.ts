/**
 * Patterns with look-ahead that libraries write beside formats and types, and the same (or a part of it) without. Each text of the
 * second matches the first.
 */

import { STRING_FORMATS } from './formats.ts';

export const WITHOUT_LOOK_AHEAD: ReadonlyMap<string, string> = new Map([
  // Addresses of zod 4 before 4.6.
  [
    "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$",
    "^(?:[A-Za-z0-9_'+-]+\\.)*[A-Za-z0-9_'+-]*[A-Za-z0-9_+-]@(?:[A-Za-z0-9][A-Za-z0-9-]*\\.)+[A-Za-z]{2,}$",
  ],
  // Durations of zod 4: a part, without fractions and without gaps between the units.
  [
    '^P(?:(\\d+W)|(?!.*W)(?=\\d|T\\d)(\\d+Y)?(\\d+M)?(\\d+D)?(T(?=\\d)(\\d+H)?(\\d+M)?(\\d+([.,]\\d+)?S)?)?)$',
    `^${STRING_FORMATS.duration}$`,
  ],
  // Host names of zod 4: a part, with at most four labels.
  [
    '^(?=.{1,253}\\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\\.?$',
    `^${STRING_FORMATS.hostname}$`,
  ],
  // Decimal numbers of Pydantic.
  ['^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$', '^[+-]?(?:\\d+\\.?\\d*|\\.\\d+)$'],
]);
