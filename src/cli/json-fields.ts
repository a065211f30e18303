/** Reading JSON that a server sent: nothing about its shape is certain. */

/** Null for what is no JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** A member of what may be an object; undefined where there is none. */
export function field(value: unknown, name: string): unknown {
  const isObject = typeof value === 'object' && value !== null && Object.hasOwn(value, name);
  return isObject ? (value as Record<string, unknown>)[name] : undefined;
}

export function stringField(value: unknown, name: string): string | null {
  const text = field(value, name);
  return typeof text === 'string' ? text : null;
}

/** A finite number from 0 up, else null. */
export function numberField(value: unknown, name: string): number | null {
  const number = field(value, name);
  return typeof number === 'number' && Number.isFinite(number) && number >= 0 ? number : null;
}
